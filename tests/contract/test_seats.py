"""What every store of seats promises: a bound over all, and no seat that is lost for ever."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from fanfold.engine.ports import Seat, Seats
from tests.contract.backends import Backend
from tests.support.clock import START


async def taken(seats: Seats, name: str, *, now: datetime = START, seconds: float = 30) -> Seat | None:
    return await seats.take(name, now=now, until=now + timedelta(seconds=seconds))


async def test_no_more_calls_than_there_are_seats_hold_one_at_a_time(backend: Backend) -> None:
    seats = backend.seats(3)
    found = await asyncio.gather(*(taken(seats, f"call {n}") for n in range(8)))
    held = [seat for seat in found if seat is not None]
    assert len(held) == len({seat.number for seat in held}) == 3
    assert await taken(seats, "one more") is None
    await seats.leave(held[0])
    again = await taken(seats, "one more")
    assert again is not None
    assert again.number == held[0].number


async def test_a_seat_whose_process_died_is_free_again_at_its_end(backend: Backend) -> None:
    seats = backend.seats(1)
    lost = await taken(seats, "dies", seconds=30)
    assert lost is not None
    assert await taken(seats, "other", now=START + timedelta(seconds=29)) is None
    heir = await taken(seats, "other", now=START + timedelta(seconds=31))
    assert heir is not None
    # Who comes back from the dead gives nothing back that is another's.
    await seats.leave(lost)
    assert await taken(seats, "third", now=START + timedelta(seconds=32)) is None


async def test_without_seats_nobody_has_one(backend: Backend) -> None:
    assert await taken(backend.seats(0), "call") is None


async def test_processes_that_share_the_table_share_its_seats(backend: Backend) -> None:
    seats = backend.seats(2)
    others = backend.seats(2)
    if type(seats).__name__.startswith("Memory"):
        others = seats  # memory is one process
    assert await taken(seats, "a") is not None
    assert await taken(others, "b") is not None
    assert await taken(seats, "c") is None
    assert await taken(others, "d") is None
