"""What travels on the queues: an envelope (a whole run, before its row) or a wake (look at this run again)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fanfold.engine.payload import Value
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import ForkOrigin, Run, Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueName:
    """A queue by its role: a class and one of its lanes, `resume`, or `dead`."""

    class_name: str
    role: str

    def __str__(self) -> str:
        return f"{self.class_name}/{self.role}"


RESUME = "resume"
DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An accepted run, whole: version 1 of its record is a pure function of this (R2).

    `not_before`: when it may begin at the earliest (None: at once). `outages` counts how often an infrastructure fault
    put it back (R5). `again`: it stands for one of which nobody knows what became. `raised`: handling it has raised
    what no code declares.
    """

    tenant: str
    run_id: str
    submission: str
    workflow: str
    workflow_version: str
    class_name: str
    lane: str
    input: Value
    tags: Mapping[str, str] = field(default_factory=dict)
    request_hash: str
    accepted_at: datetime
    deadline: datetime
    queue_deadline: datetime | None = None
    not_before: datetime | None = None
    slot: Slot | None = None
    origin: ForkOrigin | None = None
    outages: int = 0
    again: bool = False
    raised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Look at this run again: a hint, never a truth (R4). `class_name` says whose `resume` queue it uses.

    `map_step` is a map that rings because it has ended elsewhere, or could not be started there. `outages` and `raised`
    as of an envelope.
    """

    tenant: str
    run_id: str
    submission: str
    class_name: str
    map_step: str | None = None
    outages: int = 0
    raised: bool = False


Message = Envelope | Wake


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as it arrived; `receives` counts deliveries.

    `message` is None where the body can't be read; `newer` says that is because a newer version of
    the code wrote it (R12): hand it back, don't take it for broken.
    """

    queue: QueueName
    message_id: str
    receipt: str
    body: str
    message: Message | None
    receives: int
    newer: bool = False


def envelope_of(run: Run) -> Envelope:
    """The envelope of a run that is still `queued`, from its row: `first_version` makes the same run of it again."""
    return Envelope(
        tenant=run.tenant,
        run_id=run.id,
        submission=run.submission,
        workflow=run.workflow,
        workflow_version=run.workflow_version,
        class_name=run.class_name,
        lane=run.lane,
        input=run.input,
        tags=run.tags,
        request_hash=run.request_hash,
        accepted_at=run.created_at,
        deadline=run.deadline,
        queue_deadline=run.queue_deadline,
        not_before=run.not_before,
        slot=run.slot,
        origin=run.origin,
    )


def first_version(envelope: Envelope) -> Run:
    """Version 1 of the run an envelope carries: `queued`, one journal entry."""
    origin = envelope.origin
    accepted = None if origin is None else {"forked_from": origin.run_id, "from_step": origin.from_step}
    return Run(
        tenant=envelope.tenant,
        id=envelope.run_id,
        submission=envelope.submission,
        workflow=envelope.workflow,
        workflow_version=envelope.workflow_version,
        class_name=envelope.class_name,
        lane=envelope.lane,
        input=envelope.input,
        tags=envelope.tags,
        request_hash=envelope.request_hash,
        created_at=envelope.accepted_at,
        deadline=envelope.deadline,
        queue_deadline=envelope.queue_deadline,
        not_before=envelope.not_before,
        slot=envelope.slot,
        origin=origin,
        journal=(Entry(seq=1, at=envelope.accepted_at, type=EventType.RUN_ACCEPTED, data=accepted),),
    )
