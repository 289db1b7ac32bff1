"""The seams between the engine's rules and the services: the smallest the callers need.

Each port has an AWS adapter and an in-memory one; one contract suite holds both to the promises
written here. Every method may raise an `InfrastructureError`; of those, only `Unanswered` leaves
open whether the call was carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from functions.engine.errors import InfrastructureError, LimitExceeded, NewerSchema
from functions.engine.fanout import MapRecord
from functions.engine.journal import Entry
from functions.engine.message import Message, QueueName, Received
from functions.engine.run import Place, Run
from functions.engine.segments import Segment
from functions.engine.values import BlobRef, Json

# --- runs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """The write creates the row: no row of that id is there, or only an expired one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstClaim:
    """Absent (or expired), or version 1 of this very submission (R2)."""

    submission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaces:
    """The write replaces exactly this version of this submission."""

    version: int
    submission: str


Condition = Absent | FirstClaim | Replaces


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """A run's address."""

    tenant: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DueKey:
    """A row of the due index: a run's address, and when somebody must look at it."""

    tenant: str
    run_id: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKey:
    """A row of the list index: enough to find a run and to go on after it."""

    tenant: str
    run_id: str
    created_at: datetime


class Bucket:
    """The four partitions of the list index (a run is in exactly one)."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ALL = (ACTIVE, SUCCEEDED, FAILED, CANCELLED)


class RunStore(Protocol):
    """Runs' records: strongly consistent reads, conditional whole-record writes, two lagging indexes."""

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """Write the whole record; returns its size in bytes as the store counts it.

        Raises `Conflict` with the record that stands (or None), `LimitExceeded` when it is too big for an item.
        """

    async def put_segment(self, key: RunKey, segment: Segment, *, now: datetime) -> None:
        """Store an immutable segment of a run's record, before the head that names it is put."""

    async def segments(self, run: Run) -> Sequence[Segment]:
        """The segments this record names, oldest first, strongly consistent.

        Raises `NotFound` when one is missing: the record is gone or has been replaced meanwhile.
        """

    async def sealed_entries(self, run: Run, *, after: int, limit: int) -> Sequence[Entry]:
        """The first `limit` sealed entries of this record with a `seq` over `after`, fewer only where it has no more.

        Strongly consistent. Reads the segments they lie in and at most a few more, however many there are. Raises
        `NotFound` as `segments` does.
        """

    async def get(self, key: RunKey, *, now: datetime) -> Run | None:
        """The record, strongly consistent; None when absent or expired."""

    async def get_many(self, keys: Sequence[RunKey], *, now: datetime) -> Mapping[RunKey, Run | NewerSchema]:
        """Up to 100 records, strongly consistent; those absent or expired are missing.

        One that this code can't read is its error: it costs no other.
        """

    async def page(
        self, tenant: str, bucket: str, *, limit: int, before: IndexKey | None = None, ascending: bool = False
    ) -> Sequence[IndexKey]:
        """Up to `limit` index rows of a bucket, newest first (or oldest first), strictly after `before`. May lag."""

    async def due(self, class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        """A class's waiting runs whose `due_at` is not after `until`, earliest first. May lag."""


# --- queues -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """Approximate numbers of messages."""

    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to be sent with others, and for how long it is not to be delivered (0–900 s)."""

    message: Message
    delay_seconds: int = 0


NotSent = LimitExceeded | InfrastructureError
"""Why a message may not have been sent: only `Unanswered` leaves open whether it was."""


class WorkQueue(Protocol):
    """Queues with at-least-once delivery, visibility, delays up to 900 s."""

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        """Send one message; its tenant is its fairness group. Raises `LimitExceeded` (delay 0–900 s, 1 MiB)."""

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        """Send any number in as few calls as may be: what became of each, in order; None: it was sent.

        One message's error says nothing of the others. Raises none of these errors itself.
        """

    async def receive(
        self, queue: QueueName, *, limit: int, wait_seconds: int, visibility_seconds: int
    ) -> Sequence[Received]:
        """Up to `limit` (1–10) messages, waiting up to `wait_seconds` (0–20) for the first."""

    async def hide(self, messages: Sequence[Received], *, seconds: int) -> None:
        """Make these invisible for `seconds` (0–43,200) from now; receipts that are no longer valid are passed over."""

    async def delete(self, messages: Sequence[Received]) -> None:
        """Delete these; receipts that are no longer valid are passed over."""

    async def depth(self, queue: QueueName) -> QueueDepth:
        """How much is in the queue, approximately."""


# --- places -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLoad:
    """What the places counters of a class say: `depth` places taken, of `limit` (0: unbounded).

    `drain_per_second` is measured between the sweeper's last two samples (None before there are
    two); `oldest_accepted_at` is the oldest queued run the sweeper saw on its last pass.
    """

    class_name: str
    depth: int
    limit: int
    drain_per_second: float | None
    oldest_accepted_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A place taken, and what its counter said with it: about how much is queued, and begins in a second.

    `drain_per_second` is None until the sweeper has taken a sample.
    """

    place: Place
    queued: int
    drain_per_second: float | None


class Places(Protocol):
    """Exact admission: a bounded counter of accepted runs that are still queued (R6)."""

    async def reserve(self, class_name: str, *, now: datetime) -> Reservation:
        """Take a place. Raises `QueueFull`; never retried below this call."""

    async def give_back(self, class_name: str, place: Place) -> None:
        """Return a place taken before; never below zero, never retried below this call."""

    async def load(self, class_name: str) -> ClassLoad:
        """What the counters say now."""

    async def held(self, class_name: str) -> Mapping[Place, int]:
        """How many places are taken by shard and hour, strongly consistent; where there are none, none is named."""

    async def write_off(self, class_name: str, place: Place, *, surplus: int, standing: int) -> bool:
        """Subtract leaked places, provided exactly `standing` are still counted there; whether it was done.

        Written off places have not drained. Never retried below this call; asked again after no
        answer, the condition tells.
        """

    async def sample(self, class_name: str, *, now: datetime, oldest_accepted_at: datetime | None) -> None:
        """Remember the drained total and the oldest queued run; adopt the configured bound, lowering first."""


# --- maps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MapKey:
    """The records of one map step in one life of a run (all its tries)."""

    tenant: str
    run_id: str
    submission: str
    step: str


class MapRecords(Protocol):
    """What the batches of maps left behind, one record for each; a record never changes."""

    async def put(self, key: MapKey, record: MapRecord, *, expires_at: datetime) -> None:
        """Store a batch's record, unless there is one of that try and first index: then nothing changes.

        Raises `LimitExceeded` when it is too big for an item.
        """

    async def has(self, key: MapKey, *, try_number: int, first: int) -> bool:
        """Whether there is a record of that try and first index, strongly consistent."""

    async def read(self, key: MapKey) -> Sequence[MapRecord]:
        """All records of the map, strongly consistent, by try and first index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An execution of a map elsewhere: what it is called and what it needs to know; the same for whoever starts it.

    `batches` is the key of the list of batches, `batches_at_once` how many of them are worked on at a time.
    """

    name: str
    class_name: str
    tenant: str
    run_id: str
    submission: str
    step: str
    try_number: int
    batches: str
    batches_at_once: int


class FanOut(Protocol):
    """Works on the batches of maps elsewhere, each at least once, and rings at an execution's end."""

    async def start(self, execution: Execution) -> bool:
        """Start it, once per name. True: it goes on. False: there was one of that name; `going` says the rest."""

    async def going(self, execution: Execution) -> bool:
        """Whether it goes on."""

    async def stop(self, execution: Execution) -> None:
        """End it, if it goes on; batches already begun may be carried through."""


# --- payloads ---------------------------------------------------------------------------------


class Blobs(Protocol):
    """Immutable JSON payloads too big for a record."""

    async def put(self, key: str, data: bytes) -> BlobRef:
        """Store JSON bytes under a key that is never used for anything else."""

    async def get(self, ref: BlobRef) -> Json:
        """The JSON a reference stands for; raises `NotFound` when it is gone, `Unavailable` when its hash differs."""

    async def presign(self, ref: BlobRef, *, seconds: int) -> str:
        """A URL that reads the object for that long."""


# --- workflows --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One version of a workflow: `version` is `sha256:` + hash of `document`'s canonical form."""

    name: str
    version: str
    document: Json
    created_at: datetime


class Catalog(Protocol):
    """Workflow documents: immutable versions, and which of them is current."""

    async def register(self, tenant: str, registered: Registered) -> tuple[Registered, bool]:
        """Make this the current version; returns it as stored (an old one keeps its date), and whether it is new."""

    async def current(self, tenant: str, name: str) -> Registered | None:
        """The current version, strongly consistent, in one read."""

    async def version(self, tenant: str, name: str, version: str) -> Registered | None:
        """One version, in one read."""

    async def versions(self, tenant: str, name: str) -> Sequence[tuple[str, datetime]]:
        """All versions and when they were first registered, newest first."""

    async def names(self, tenant: str, *, limit: int, after: str | None = None) -> Sequence[Registered]:
        """The current version of each workflow, by name, strictly after a name."""


# --- tokens -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token as stored: never its secret, only the SHA-256 (hex) of it.

    `max_lane` and `max_priority` (0–9) bound what it may submit; None: any.
    """

    id: str
    sha256: str
    tenant: str
    scopes: frozenset[str]
    owner: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    max_lane: str | None = None
    max_priority: int | None = None


class Tokens(Protocol):
    """Tokens by id, and the tenants they were made for."""

    async def put(self, token: Token) -> None:
        """Store a new token and remember its tenant. Raises `Conflict` if the id is taken."""

    async def get(self, token_id: str) -> Token | None:
        """One token, in one read."""

    async def list(self) -> Sequence[Token]:
        """All tokens, revoked ones too."""

    async def revoke(self, token_id: str, *, now: datetime) -> Token:
        """Mark it revoked (again: no change). Raises `NotFound`."""

    async def tenants(self) -> Collection[str]:
        """Every tenant that ever had a token."""


# --- marks ------------------------------------------------------------------------------------


class Marks(Protocol):
    """Where a recurring job left off, by name: hints. The last writer wins, and losing one costs only work."""

    async def get(self, name: str) -> Json:
        """What was put last, strongly consistent; None when nothing was."""

    async def put(self, name: str, value: Json) -> None:
        """Remember a JSON value of at most a few KB."""


# --- secrets ----------------------------------------------------------------------------------


class Secrets(Protocol):
    """Secrets of the deployment, by name: drawn by whoever needs one first, the same for everybody from then on."""

    async def shared(self, name: str, *, drawn: str) -> str:
        """The secret of that name, strongly consistent; `drawn` becomes it if there is none yet."""


# --- time and chance --------------------------------------------------------------------------


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> datetime:
        """Wall time, aware UTC, whole milliseconds."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Ids(Protocol):
    """Names nobody else draws."""

    def token(self) -> str:
        """12 random bytes as 16 characters of URL-safe base64: submission, claim and write ids."""

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
