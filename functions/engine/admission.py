"""The arithmetic of admission: how a bound is split over counters, and how long a refused caller should wait (R6)."""

from __future__ import annotations

import math
from typing import Final

UNKNOWN_RATE_SECONDS: Final = 5
MAX_RETRY_AFTER_SECONDS: Final = 60


def shares(limit: int, shards: int) -> list[int | None]:
    """A class's bound split over its shards, adding up to it exactly; None where there is no bound (0)."""
    if limit == 0:
        return [None] * shards
    return [limit // shards + (1 if number < limit % shards else 0) for number in range(shards)]


def retry_after_seconds(limit: int, drain_per_second: float | None) -> int:
    """How long a refused caller should wait: until a hundredth of the bound has drained, 1–60 s; 5 s without a rate."""
    if drain_per_second is None:
        return UNKNOWN_RATE_SECONDS
    if drain_per_second <= 0:
        return MAX_RETRY_AFTER_SECONDS
    needed = max(1, limit / 100)
    return min(MAX_RETRY_AFTER_SECONDS, max(1, math.ceil(needed / drain_per_second)))
