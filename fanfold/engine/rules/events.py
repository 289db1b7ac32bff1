"""What can happen to a run: the inputs of `decide`. Each is safe to hand in twice."""

from __future__ import annotations

from dataclasses import dataclass

from fanfold.engine.language.maps import ItemError
from fanfold.engine.payload import Json, Value
from fanfold.engine.record.run import Failure


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
    failure: Failure
    retryable: bool
    chance: float
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptNotBegun:
    """An attempt recorded as started never called its task; it counts as no failure, and the next may start now."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The holder has to stop (it was told to, or its time is over) and has broken off what still ran: no crash.

    The run is let go, due now. Nothing is evaluated, so a holder can always say so.
    """


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
class QueueDeadlineChecked:
    """The sweeper asks whether a queued run's deadlines have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapEnded:
    """Every item of a map has an end: `failed` of them failed, the first `errors` say why.

    `output` has a result for each item, in item order, null for one that failed.
    """

    step: str
    attempt: int
    output: Value
    failed: int
    errors: tuple[ItemError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStillRunning:
    """A distributed map is still running; `signalled`: although a wake says that it has ended."""

    step: str
    attempt: int
    signalled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapThrottled:
    """A map's execution has ended, and some of its items were never begun: there was no room for their functions.

    `again` is that of the state which was looked at; they are listed for the execution after it.
    """

    step: str
    attempt: int
    again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCompletionSignalled:
    """A distributed map says that it has ended: its holder should look."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MapYielded:
    """A map in its worker has no time left there; what it has done is recorded, the rest is for the next worker."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTooLarge:
    """The record that would follow from what happened is too big for the store; `detail` names the limit."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecidable:
    """What follows for the run can't be decided, again and again, for `detail`; `owner` is the claim that says so."""

    owner: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReloaded:
    """The holder goes by a record that an operator has written: any step may be able to move."""


# --- operators' moves (R10): each is decided alone, on the record as it stands --------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """A move's idempotency key, and what it says, both as short hashes."""

    key: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """An operator cancels the run; `by` is the token's owner, here and below."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """An operator wants no new step to start, and deadlines to stand still."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """An operator lets a paused run go on."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled:
    """A signal for the run, for the wait of that name that is open or comes next."""

    by: str
    name: str
    payload: Value
    keyed: Keyed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveAsked:
    """An operator lets a failed or cancelled run go on from where it ended."""

    by: str
    keyed: Keyed | None = None


OperatorRequest = CancelAsked | PauseAsked | ResumeAsked | Signalled | RedriveAsked
AttemptEvent = AttemptSucceeded | AttemptFailed | AttemptNotBegun | Emitted
MapEvent = MapEnded | MapStillRunning | MapThrottled | MapCompletionSignalled | MapYielded
StepEvent = AttemptEvent | MapEvent
Happening = (
    StepEvent | Claimed | RecordReloaded | Renewed | StopRequested | QueueDeadlineChecked | RecordTooLarge | Undecidable
)
Event = OperatorRequest | Happening
