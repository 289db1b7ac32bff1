"""The lease as its holder sees it: when to renew, and when to stop, earlier than it ends for anybody else (R3, R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from fanfold.engine.ports import Clock


class HeldLease:
    """One holder's right to go on.

    It lasts from the sending of the last put that was done, for a lease less the clocks' `skew`, on
    the monotonic clock; and on the wall clock until the lease's end as recorded. `at_end` is called
    when it is over, even while its holder waits for an answer; then it is over for good, whatever
    the answer is.
    """

    def __init__(self, clock: Clock, *, lease: timedelta, skew: timedelta, at_end: Callable[[], None]) -> None:
        self._clock = clock
        self._renew_seconds = lease.total_seconds() / 3
        self._seconds = (lease - skew).total_seconds()
        self._at_end = at_end
        self._until: datetime | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.since = 0.0

    def extend(self, until: datetime | None, *, since: float | None = None) -> None:
        """The record that stands says `until`; it was sent at `since` (None: no later than the last one)."""
        self.stop()
        self._until = until
        if since is not None:
            self.since = since
        left = self.since + self._seconds - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, left), self._end)

    def _end(self) -> None:
        self._ended = True
        self._at_end()

    def stop(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def over(self) -> bool:
        """Whether the holder must have stopped."""
        past = self._until is not None and self._clock.now() > self._until
        return self._ended or past or self._clock.monotonic() >= self.since + self._seconds

    def renewal_left(self) -> float:
        """Seconds until a renewal is due, at a third of the lease; 0 or less: it is."""
        return self.since + self._renew_seconds - self._clock.monotonic()
