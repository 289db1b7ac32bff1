"""Time that moves when a test says so, and chance that repeats."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import datetime, timedelta

from fanfold.testing.virtual_time import START, SeededIds

__all__ = ["START", "FakeClock", "SeededIds", "settle"]


class FakeClock:
    """A `Clock` that stands still until `advance`, `set_now` or `set_monotonic`.

    `now` and `monotonic` can be set apart, to play a machine whose wall clock jumps. A sleeper
    wakes once `monotonic` has passed its time.
    """

    def __init__(self, now: datetime = START, monotonic: float = 0.0) -> None:
        self._now = now
        self._monotonic = monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> datetime:
        return self._now.replace(microsecond=self._now.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._numbers), woken))
        await woken

    @property
    def sleepers(self) -> int:
        """How many wait for this clock."""
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    def set_now(self, now: datetime) -> None:
        """Move the wall clock alone, forth or back."""
        self._now = now

    def set_monotonic(self, monotonic: float) -> None:
        """Move the monotonic clock alone, and wake who waited for it."""
        assert monotonic >= self._monotonic, "a monotonic clock never goes back"
        self._monotonic = monotonic
        while self._sleepers and self._sleepers[0][0] <= monotonic:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    async def advance(self, seconds: float) -> None:
        """Move both clocks sleeper by sleeper, and let what woke run as far as it can."""
        until = self._monotonic + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._move(self._sleepers[0][0])
            await settle()
        self._move(until)
        await settle()

    def _move(self, monotonic: float) -> None:
        self._now += timedelta(seconds=monotonic - self._monotonic)
        self.set_monotonic(monotonic)


async def settle(turns: int = 20) -> None:
    """Let everything that can run without time passing run."""
    for _ in range(turns):
        await asyncio.sleep(0)
