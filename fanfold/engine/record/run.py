"""The run's record: what is true of a run, and the one table of moves its status may make.

A `Run` is a value. Nothing here changes one; `decide` returns the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fanfold.engine.errors import IllegalTransition
from fanfold.engine.language.maps import MapState
from fanfold.engine.payload import BlobRef, Json, Value
from fanfold.engine.record.journal import Entry

SCHEMA = 1
"""The record format this code writes. It reads this and every lower number (R12)."""


class Status(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"  # accepted, not yet claimed; holds a queue slot, also while it is paused
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
    Status.PAUSED: frozenset({Status.PAUSED, Status.QUEUED, Status.RUNNING, Status.WAITING}) | TERMINAL,
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset({Status.WAITING}),  # redrive
    Status.CANCELLED: frozenset({Status.WAITING}),  # redrive
}
"""Every legal transition of a run's status. Any other is an error."""


def check_move(old: Status, new: Status) -> None:
    """Raise `IllegalTransition` unless the table has the transition."""
    if new not in MOVES[old]:
        raise IllegalTransition(f"{old} → {new}")


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
    RETRYING = "retrying"  # failed, to be tried again at `due_at`
    WAITING = "waiting"  # a wait that is open, or a distributed map
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


SETTLED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED})
"""The states a step ends in. The one list of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a step or run failed: a stable `type` for programs, a sentence for people."""

    type: str
    message: str


def failure_view(failure: Failure | None) -> Json:
    """A failure as JSON: `{type, message}`, or null."""
    return None if failure is None else {"type": failure.type, "message": failure.message}


@dataclass(frozen=True, kw_only=True)  # without slots: see `fast_replace`
class StepState:
    """What is recorded of a step: its checkpoint once settled.

    `attempts` counts executions begun, `failures` those that ended in an error, `interruptions`
    those whose worker died; an attempt is at most one of the latter two. `due_at` is when the step
    needs a look: its next attempt, the end of its wait, the next look at its map. `map` is what is
    recorded of a map step beside. `missing_since` is since when its task can't be called where it was to begin; `error`
    says why.
    """

    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    failures: int = 0
    interruptions: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    due_at: datetime | None = None
    output: Value = None
    error: Failure | None = None
    map: MapState | None = None
    missing_since: datetime | None = None

    @property
    def settled(self) -> bool:
        """Whether the step has ended, however."""
        return self.status in SETTLED


HOUR_SECONDS = 3_600
"""What an hour of acceptance is, in seconds. A setting, so that tests need not wait for real ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot in a class's queue: the counter shard and the hour (since the epoch) of acceptance (R6)."""

    shard: int
    hour: int


UNSEALED = "."
"""In `Sealed.statuses`: a step whose state is in the head, or which has not begun."""

_CODES: Mapping[StepStatus, str] = {
    StepStatus.SUCCEEDED: "s",
    StepStatus.FAILED: "f",
    StepStatus.SKIPPED: "k",
    StepStatus.CANCELLED: "c",
}
_STATUSES: Mapping[str, StepStatus] = {code: status for status, code in _CODES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What the head knows of the parts of the record that lie in immutable segments (R8).

    `newest` is the newest segment's name (each names the one before it), `last_seq` the last journal
    entry in any of them. `statuses` has one character for each step of the workflow, in document
    order ("" stands for none sealed), so that deciding on the run needs no segment.
    """

    newest: str | None = None
    last_seq: int = 0
    statuses: str = ""

    def status(self, position: int) -> StepStatus | None:
        """The state of the sealed step at that position of the document; None for one that is not sealed."""
        return _STATUSES.get(self.statuses[position]) if self.statuses else None

    @property
    def steps(self) -> int:
        """How many steps are sealed."""
        return len(self.statuses) - self.statuses.count(UNSEALED)

    def marked(self, states: Mapping[int, StepStatus | None], size: int) -> str:
        """`statuses` with the steps at these positions sealed so (None: not sealed any more), of `size` steps."""
        marks = list(self.statuses or UNSEALED * size)
        for position, status in states.items():
            marks[position] = UNSEALED if status is None else _CODES[status]
        return "".join(marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal nobody has taken yet: its journal `seq`, its name, its payload (over 1 KB by reference)."""

    seq: int
    name: str
    payload: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """An operator's keyed move that was carried out: hashes of its key and of what it said, and its journal `seq`."""

    key: str
    content: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOrigin:
    """What a fork goes on from: the run and step, and the checkpoints it takes over.

    `since` is when the first of its forebears was accepted: payloads live no longer than a run's
    life from then, and so the fork may not either (R15).
    """

    run_id: str
    from_step: str
    checkpoints: BlobRef
    since: datetime


@dataclass(frozen=True, kw_only=True)  # without slots: see `fast_replace`
class Run:
    """A run's whole record, one head item.

    `version` counts writes, `epoch` claims, `try_number` redrives from 1. `owner` is the claim id of the
    worker that holds the run, or held it last (R3). `lease_until` is meaningful while the run is
    held. `not_before` is when a delayed run may begin, `due_at` the time by which somebody must look at a
    waiting one (R4). `steps` holds the steps that have begun or ended and are not sealed; one that is in neither is
    pending. `signals` are those not yet taken, oldest first; `receipts` the keyed moves last carried out;
    `cancel_requested` asks the holder to end the run. `head_bytes` is how big the store holds the record (0: not
    known), and no part of it. Times are aware UTC with milliseconds.
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
    not_before: datetime | None = None
    slot: Slot | None = None

    status: Status = Status.QUEUED
    reason: Reason | None = None
    error: Failure | None = None
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
    sealed: Sealed = Sealed()
    signals: tuple[Signal, ...] = ()
    receipts: tuple[IdempotencyRecord, ...] = ()
    paused_at: datetime | None = None
    cancel_requested: bool = False
    origin: ForkOrigin | None = None
    head_bytes: int = field(default=0, compare=False, repr=False)

    @property
    def in_queue(self) -> bool:
        """Whether the run holds its queue slot: accepted and never claimed, perhaps paused (R6)."""
        return self.slot is not None and self.epoch == 0 and self.status in (Status.QUEUED, Status.PAUSED)

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in TERMINAL

    @property
    def last_seq(self) -> int:
        """The newest journal entry's `seq`."""
        if self.journal:
            return self.journal[-1].seq
        return self.sealed.last_seq
