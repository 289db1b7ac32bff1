"""The real time and the real chance, as the ports want them."""

from __future__ import annotations

import asyncio
import base64
import random
import secrets
import time
from datetime import UTC, datetime


class SystemClock:
    """A `Clock` on the machine's own clocks."""

    def now(self) -> datetime:
        """Wall time, aware UTC, cut to whole milliseconds (what the record can hold)."""
        return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000, UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait, letting everything else go on."""
        await asyncio.sleep(seconds)


class SystemIds:
    """An `Ids` on the operating system's randomness."""

    def token(self) -> str:
        """12 random bytes as 16 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(secrets.token_bytes(12)).decode("ascii")

    def random(self) -> float:
        """A number in [0, 1), for jitter: need not be hard to guess."""
        return random.random()
