"""Time and chance, which the rules never ask for themselves."""

from __future__ import annotations

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


class Ids(Protocol):
    """Names nobody else draws."""

    def token(self) -> str:
        """12 random bytes as 16 characters of URL-safe base64: submission, claim and write ids."""

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
