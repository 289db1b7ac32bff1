"""Makes a failing schedule smaller: fewer runs, an earlier end of faults, fewer faults, the same broken promise."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.outcome import Failure
from tests.simulation.schedule import play

MAX_PLAYS = 120
"""How often a schedule is played to shrink it: seconds, not minutes."""


def shrink(failure: Failure) -> Failure:
    """The smallest variant found that breaks the same promise."""
    return _Shrinking(failure).smallest()


class _Shrinking:
    def __init__(self, failure: Failure) -> None:
        self._best = failure
        self._spared: frozenset[str] = frozenset()
        self._runs: int | None = None
        self._plays = 0

    def smallest(self) -> Failure:
        for runs in (1, 2, 3):
            if self._still_fails(self._spared, runs):
                self._runs = runs
                break
        self._spare_faults()
        return self._best

    def _spare_faults(self) -> None:
        """Take away half of the faults, then quarters, down to single ones."""
        size = max(1, len(self._best.struck) // 2)
        while self._plays < MAX_PLAYS:
            for part in _parts([plan.site for plan in self._best.struck], size):
                if self._still_fails(self._spared | part, self._runs):
                    self._spared |= part
            if size == 1:
                return
            size = max(1, size // 2)

    def _still_fails(self, spared: frozenset[str], runs: int | None) -> bool:
        if self._plays >= MAX_PLAYS:
            return False
        self._plays += 1
        played = play(self._best.seed, spared=spared, runs=runs)
        if played.failure is None or played.failure.what != self._best.what:
            return False
        self._best = played.failure
        return True


def _parts(sites: Sequence[str], size: int) -> Sequence[frozenset[str]]:
    return [frozenset(sites[start : start + size]) for start in range(0, len(sites), size)]
