"""What operators may do to a run, and in which of its states."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from fanfold.engine.errors import WrongState
from fanfold.engine.record.run import TERMINAL, Run, Status


class Operation(StrEnum):
    """What an operator may do to a run."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    SIGNAL = "signal"
    REDRIVE = "redrive"
    FORK = "fork"


_LIVE = frozenset(Status) - TERMINAL
OPERATIONS: Mapping[Operation, frozenset[Status]] = {
    Operation.CANCEL: _LIVE | {Status.CANCELLED},  # what is so already stays so: asking again is no conflict
    Operation.PAUSE: _LIVE,
    Operation.RESUME: _LIVE,
    Operation.SIGNAL: _LIVE,
    Operation.REDRIVE: frozenset({Status.FAILED, Status.CANCELLED}),
    Operation.FORK: frozenset(Status),
}
"""The states in which each operation is possible; in any other it is a conflict that says the state (R10)."""


def check_operation(operation: Operation, run: Run) -> None:
    """Raises `WrongState` unless the run's state allows the operation."""
    if run.status not in OPERATIONS[operation]:
        raise WrongState(operation, run.status)
    if run.cancel_requested and operation not in (Operation.CANCEL, Operation.FORK):
        raise WrongState(operation, run.status, cancelling=True)
