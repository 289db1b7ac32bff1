"""The trace of one try: every call, every attempt, every effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fanfold.engine.record.run import Run


class Moment(StrEnum):
    """When a process dies, relative to a call."""

    BEFORE = "before"  # the call is not made
    AFTER = "after"  # the call is done, its answer is lost


@dataclass(frozen=True, slots=True)
class Crash:
    """The process that makes the call of this number dies before or after it."""

    number: int
    moment: Moment


@dataclass(slots=True, kw_only=True)
class Site:
    """One call to a service, or one effect: `port.method`, and a description for people.

    `steps` are the steps that it concerns, if known. `ended`: whether the call was completed.
    """

    number: int
    process: str
    call: str
    about: str = ""
    steps: tuple[str, ...] = ()
    ended: bool = False

    def __str__(self) -> str:
        return f"{self.call} ({self.about})" if self.about else self.call


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An effect of a task. `key` is its idempotency key, if it has one.

    `index` is the item's in a map. `process` is the worker.
    """

    name: str
    key: str | None
    step: str
    index: int | None
    attempt: int
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An attempt that really began. `complaint`: why the record did not allow it, if it did not."""

    step: str
    index: int | None
    attempt: int
    process: str
    complaint: str | None


@dataclass(slots=True, kw_only=True)
class Trace:
    """What happened from acceptance to the end. `run` is its record as last seen, read whole.

    `struck` are the sites at which a process died; `cut_off` the steps that were running under `on_interrupt: fail`
    when one did, and how many executions there had been by then. `broken` are sentences on what went wrong beside the
    record.
    """

    crashes: tuple[Crash, ...] = ()
    sites: list[Site] = field(default_factory=list)
    struck: list[tuple[Moment, Site]] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    cut_off: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    run: Run | None = None
    seconds: float = 0.0

    def counts(self) -> Mapping[tuple[str, int | None], int]:
        """How often each step (and item of a map) was executed."""
        counts: dict[tuple[str, int | None], int] = {}
        for execution in self.executions:
            at = (execution.step, execution.index)
            counts[at] = counts.get(at, 0) + 1
        return counts
