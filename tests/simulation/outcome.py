"""What came of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.fate import Plan

Line = tuple[float, str, str, Any]
"""Of the trace: when (virtual seconds), who, what, and what about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A promise that was broken: which, how, what had gone wrong, and the course of events."""

    seed: int
    what: str
    detail: str
    struck: tuple[Plan, ...]
    trace: tuple[Line, ...]

    def report(self, last: int = 60) -> str:
        """For people: the faults, and the last lines of the trace."""
        faults = [f"    {plan.site}: {plan.fault}" for plan in self.struck]
        lines = [f"    {at:9.3f} {who:11} {what} {detail}" for at, who, what, detail in self.trace[-last:]]
        return "\n".join([f"seed {self.seed}: {self.what}: {self.detail}", "  faults:", *faults, "  trace:", *lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A schedule that was played: its failure, if any, and how much happened in it."""

    seed: int
    failure: Failure | None
    faults: int
    runs: int
    writes: int
    virtual_seconds: float
    turns: int
