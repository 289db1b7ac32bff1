"""How many may work at once as time goes on: a number of processes, or what Lambda lets a mapping have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lab.scale.deployment import Deployment
from lab.scale.limits import (
    FUNCTION_GROWTH,
    FUNCTION_GROWTH_SECONDS,
    MAPPING_GROWTH_A_MINUTE,
    MAPPING_MOST,
    MAPPING_START,
)

WORKERS = "workers"
RAMP = "mapping's ramp-up"
FUNCTION = "function's scaling rate"
MAXIMUM = "MaximumConcurrency"
MAPPING = "a mapping's most"
ACCOUNT = "account concurrency"


class Room(Protocol):
    """How many may be at work after so many seconds under load, and what keeps it from being more."""

    @property
    def most(self) -> int:
        """What it comes to at last."""

    def at(self, seconds: float) -> tuple[int, str]:
        """How many, and the name of what binds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """So many workers that are there all the time."""

    workers: int

    @property
    def most(self) -> int:
        """See `Room.most`."""
        return self.workers

    def at(self, seconds: float) -> tuple[int, str]:
        """See `Room.at`."""
        return self.workers, WORKERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """Batches at once of a lane's mapping, from when its queue filled. `elsewhere` is what the account uses besides."""

    deployment: Deployment
    elsewhere: int = 0

    @property
    def most(self) -> int:
        """See `Room.most`."""
        return min(count for count, _ in self._ends())

    def at(self, seconds: float) -> tuple[int, str]:
        """See `Room.at`."""
        grown = (
            (MAPPING_START + int(MAPPING_GROWTH_A_MINUTE * seconds / 60), RAMP),
            (FUNCTION_GROWTH + int(FUNCTION_GROWTH * seconds / FUNCTION_GROWTH_SECONDS), FUNCTION),
        )
        # Of two that allow the same, the one that stays.
        return min((*self._ends(), *grown), key=lambda it: it[0])

    def _ends(self) -> tuple[tuple[int, str], ...]:
        return (
            (self.deployment.maximum_concurrency, MAXIMUM),
            (MAPPING_MOST, MAPPING),
            (max(0, self.deployment.account_concurrency - self.elsewhere), ACCOUNT),
        )
