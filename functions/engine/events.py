"""What can happen to a run: the inputs of `decide`. Each is safe to hand in twice."""

from __future__ import annotations

from dataclasses import dataclass

from functions.engine.run import Fault
from functions.engine.values import Json, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A worker takes the run under a claim id nobody else has; `worker` is its name, for people."""

    owner: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSucceeded:
    """An attempt ended with this output."""

    step: str
    attempt: int
    output: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """An attempt ended with an error.

    `after_seconds` is the delay the task asked for; `chance` is a random number in [0, 1) drawn by
    the shell, for the jitter of the delay.
    """

    step: str
    attempt: int
    fault: Fault
    retryable: bool
    chance: float
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """A running attempt reports progress."""

    step: str
    attempt: int
    data: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The holder extends its lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The sweeper asks whether a queued run's deadlines have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overgrown:
    """The record that would follow from what happened is too big for the store; `detail` names the limit."""

    detail: str


Event = Claimed | AttemptSucceeded | AttemptFailed | Emitted | Renewed | Swept | Overgrown
