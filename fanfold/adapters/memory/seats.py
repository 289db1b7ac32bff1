"""Seats of calls that wait, in memory."""

from __future__ import annotations

from datetime import datetime

from fanfold.engine.ports import Seat


class MemorySeats:
    """A `Seats` in memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[int, tuple[str, datetime]] = {}

    async def take(self, name: str, *, now: datetime, until: datetime) -> Seat | None:
        """See `Seats.take`."""
        for number in range(self._most):
            if number not in self._taken or self._taken[number][1] < now:
                self._taken[number] = (name, until)
                return Seat(number=number, name=name)
        return None

    async def leave(self, seat: Seat) -> None:
        """See `Seats.leave`."""
        if self._taken.get(seat.number, ("",))[0] == seat.name:
            del self._taken[seat.number]
