"""The run's record: what is true of a run, and the one table of moves its status may make.

A `Run` is a value. Nothing here changes one; `decide` returns the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from functions.engine.errors import IllegalMove
from functions.engine.journal import Entry
from functions.engine.values import Json, Value

SCHEMA = 1
"""The record format this code writes. It reads this and every lower number (R12)."""


class Status(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"  # accepted, not yet claimed; holds a queue place
    RUNNING = "running"  # a worker holds it under a lease
    WAITING = "waiting"  # let go; `due_at` says when somebody must look
    PAUSED = "paused"  # an operator stopped it; no new step starts
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})
"""The states a run ends in. The one list of them."""

MOVES: Mapping[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.PAUSED, Status.FAILED, Status.CANCELLED}),
    Status.RUNNING: frozenset({Status.RUNNING, Status.WAITING, Status.PAUSED}) | TERMINAL,
    Status.WAITING: frozenset({Status.RUNNING, Status.WAITING, Status.PAUSED, Status.FAILED, Status.CANCELLED}),
    Status.PAUSED: frozenset({Status.PAUSED, Status.RUNNING, Status.WAITING}) | TERMINAL,
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset({Status.WAITING}),  # redrive
    Status.CANCELLED: frozenset({Status.WAITING}),  # redrive
}
"""Every legal move of a run's status. A move that is not here is an error."""


def check_move(old: Status, new: Status) -> None:
    """Raises `IllegalMove` unless the table knows the move."""
    if new not in MOVES[old]:
        raise IllegalMove(f"{old} → {new}")


class Reason(StrEnum):
    """Why a failed run failed."""

    STEP_FAILED = "step_failed"
    TIMED_OUT = "timed_out"
    EXPIRED_IN_QUEUE = "expired_in_queue"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "pending"  # not all its needs are settled, or its turn has not come
    RUNNING = "running"  # an attempt was recorded as started and has no recorded end
    RETRYING = "retrying"  # failed, to be tried again at `retry_at`
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


SETTLED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED})
"""The states a step ends in. The one list of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a step or run failed: a stable `type` for programs, a sentence for people."""

    type: str
    message: str


def fault_view(fault: Fault | None) -> Json:
    """A fault as JSON: `{type, message}`, or null."""
    return None if fault is None else {"type": fault.type, "message": fault.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """What is recorded of a step: its checkpoint once settled.

    `attempts` counts executions begun, `failures` those that ended in an error, `interruptions`
    those whose worker died; an attempt is at most one of the latter two.
    """

    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    failures: int = 0
    interruptions: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retry_at: datetime | None = None
    output: Value = None
    error: Fault | None = None

    @property
    def settled(self) -> bool:
        """Whether the step has ended, however."""
        return self.status in SETTLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a class's queue: the counter shard and the hour (since the epoch) of acceptance (R6)."""

    shard: int
    hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """The name of a sealed, immutable part of the record: the seqs `[first_seq, last_seq]` it holds (R8)."""

    name: str
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's whole record, one head item.

    `version` counts writes, `epoch` claims, `try_number` redrives from 1. `owner` is the claim id of the
    worker that holds the run, or held it last (R3). `lease_until` is meaningful while the run is
    held. `due_at` is the time by which somebody must look at a waiting run (R4). `steps` is in
    document order. Times are aware UTC with milliseconds.
    """

    tenant: str
    id: str
    submission: str
    workflow: str
    workflow_version: str
    class_name: str
    lane: str
    input: Value
    tags: Mapping[str, str] = field(default_factory=dict)
    request_hash: str
    created_at: datetime
    deadline: datetime
    queue_deadline: datetime | None = None
    place: Place | None = None

    status: Status = Status.QUEUED
    reason: Reason | None = None
    error: Fault | None = None
    output: Value = None
    version: int = 1
    write_id: str = ""
    epoch: int = 0
    try_number: int = 1
    owner: str | None = None
    lease_until: datetime | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    crashes: int = 0
    steps: Mapping[str, StepState] = field(default_factory=dict)
    journal: tuple[Entry, ...] = ()
    segments: tuple[SegmentRef, ...] = ()

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in TERMINAL

    @property
    def last_seq(self) -> int:
        """The newest journal entry's `seq`."""
        if self.journal:
            return self.journal[-1].seq
        return self.segments[-1].last_seq if self.segments else 0
