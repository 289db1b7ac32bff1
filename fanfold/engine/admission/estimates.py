"""The arithmetic of admission: how a bound is split over counters, and how long a refused caller should wait (R6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

UNKNOWN_RATE_SECONDS: Final = 5
MAX_RETRY_AFTER_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long a run will wait, as if a class's lanes were one queue: `ahead` runs are before it.

    `starts_in_seconds` is None where nothing has drained lately, so that nobody can tell.
    """

    ahead: int
    drain_per_second: float | None
    starts_in_seconds: float | None


def estimate(ahead: int, drain_per_second: float | None, *, delay_seconds: float = 0) -> Estimate:
    """The wait of a run behind so many others that is not to begin before `delay_seconds`."""
    wait: float | None = 0.0
    if ahead > 0:
        wait = ahead / drain_per_second if drain_per_second else None
    return Estimate(
        ahead=ahead,
        drain_per_second=None if drain_per_second is None else round(drain_per_second, 3),
        starts_in_seconds=None if wait is None else round(max(wait, delay_seconds), 3),
    )


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
