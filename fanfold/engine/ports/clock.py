"""Time and chance, which the rules never ask for themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> datetime:
        """Wall time, aware UTC, whole milliseconds."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks. A frozen process may find that only one of them went on meanwhile."""

    monotonic: float
    wall: datetime

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        """This moment."""
        return cls(clock.monotonic(), clock.now())

    def within(self, seconds: float, clock: Clock) -> bool:
        """Whether at most so many seconds have passed since then, whichever clock one asks."""
        passed = max(clock.monotonic() - self.monotonic, (clock.now() - self.wall).total_seconds())
        return passed < seconds


class Ids(Protocol):
    """Names nobody else draws."""

    def token(self) -> str:
        """12 random bytes as 16 characters of URL-safe base64: submission, claim and write ids."""

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
