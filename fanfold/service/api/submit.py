"""Submit: reserve a slot, send the envelope, create the row. Where it breaks off, nothing accepted is lost.

What is left behind at each point is the table in docs/decisions/0021-submit.md.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from fanfold.engine.admission.estimates import Estimate, estimate
from fanfold.engine.admission.lanes import UNBOUND, USUAL, LaneLimit, LaneRequest, lane_of
from fanfold.engine.errors import (
    Conflict,
    InfrastructureError,
    InvalidDocument,
    KeyReused,
    LimitExceeded,
    Throttled,
    Unanswered,
    Unavailable,
    ValidationIssue,
)
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Value, dump
from fanfold.engine.ports import Ids, IfAbsent, NotSent, Outgoing, RunKey
from fanfold.engine.record.messages import Envelope, QueueName, first_version
from fanfold.engine.record.run import ForkOrigin, Run, Slot
from fanfold.engine.rules.fork import TakenOver
from fanfold.service.payloads import payload_key
from fanfold.service.retrying import Patience, doubling, insist
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache


class _TooLate(Unanswered):
    """The time to create a row is over."""


PUT_PATIENCE = Patience(
    pauses_seconds=doubling(0.05, 1.0), budget_seconds=10.0, final=lambda error: isinstance(error, _TooLate)
)
"""How long the row is tried for once the envelope is sent: leaves API Gateway's 30 s room for the answer."""

RELEASE_PATIENCE = Patience(
    pauses_seconds=(0.05, 0.1), budget_seconds=0.2, final=lambda error: not isinstance(error, (Throttled, Unavailable))
)
"""A slot's release is repeated after a definite refusal only, and its caller waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a client asks for. `request_hash` (SHA-256, hex) is over the body as it was sent."""

    tenant: str
    workflow: str
    workflow_version: str | None = None
    input: Value = field(default_factory=dict)
    urgency: LaneRequest = USUAL
    bound: LaneLimit = UNBOUND
    tags: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0
    request_hash: str
    key: str | None = None
    fork: TakenOver | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The run that stands, and whether an earlier submit with the same key made it; if not, how long it may wait."""

    run: Run
    replayed: bool
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A submission that has its slot and is ready to be sent to `queue`; `run` is version 1 of what it becomes."""

    asked: Submission
    slot: Slot
    queue: QueueName
    run: Run
    outgoing: Outgoing
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Submitter:
    """Accepts runs: one reservation, one send, one put, and a catalog read where no version is named."""

    services: Services
    workflows: WorkflowCache

    async def submit(self, asked: Submission) -> Submitted:
        """The accepted run.

        Raises `NotFound`, `InvalidDocument` (a lane or class there is none of), `LaneDenied`, `QueueFull`,
        `KeyReused`, or an `InfrastructureError`.
        """
        key = run_key(asked)
        if key is not None:
            recorded = await self.services.runs.get(key, now=self.services.clock.now())
            if recorded is not None:
                return replay(recorded, asked)
        prepared = await self.prepare(asked, await self.workflow(asked))
        error: NotSent | None = None
        try:
            await self.services.queue.send(
                prepared.queue, prepared.outgoing.message, delay_seconds=prepared.outgoing.delay_seconds
            )
        except (LimitExceeded, InfrastructureError) as not_sent:
            error = not_sent
        return await self.conclude(prepared, error)

    async def workflow(self, asked: Submission) -> Workflow:
        """The workflow a submission names, if it may run. Raises `NotFound`, `InvalidDocument` or `LaneDenied`."""
        if asked.workflow_version is None:
            workflow = await self.workflows.current(asked.tenant, asked.workflow)
        else:
            workflow = await self.workflows.get(asked.tenant, asked.workflow, asked.workflow_version)
        if workflow.class_name not in self.services.settings.classes:
            known = ", ".join(self.services.settings.classes)
            raise InvalidDocument(
                (
                    ValidationIssue(
                        pointer="/workflow",
                        detail=f"its class {workflow.class_name!r} is not deployed; there are: {known}",
                    ),
                )
            )
        self._lane(asked, workflow)
        return workflow

    def _lane(self, asked: Submission, workflow: Workflow) -> str:
        lanes = self.services.settings.classes[workflow.class_name].lanes
        return lane_of(workflow.class_name, lanes, asked.urgency, asked.bound)

    async def prepare(self, asked: Submission, workflow: Workflow) -> Prepared:
        """Reserve a slot and store a big input: what is to be sent next. Whatever becomes of it, `conclude` it."""
        now = self.services.clock.now()
        lane = self._lane(asked, workflow)
        run_id = (run_key(asked) or RunKey(tenant=asked.tenant, run_id=_drawn_id(self.services.ids))).run_id
        submission = self.services.ids.token()
        key = partial(payload_key, asked.tenant, run_id, submission)
        # Unanswered: at most a slot too many, which the sweeper heals.
        reserved = await self.services.slots.reserve(workflow.class_name, now=now)
        # Timeouts count from when the run may begin: else a delay near its timeout could only ever expire.
        start = now + timedelta(seconds=asked.delay_seconds)
        begun = now if asked.fork is None else asked.fork.since
        end = begun + timedelta(days=self.services.settings.max_life_days)
        queue_timeout = workflow.queue_timeout_seconds
        try:
            envelope = Envelope(
                tenant=asked.tenant,
                run_id=run_id,
                submission=submission,
                workflow=workflow.name,
                workflow_version=workflow.version,
                class_name=workflow.class_name,
                lane=lane,
                input=await self._stored(asked.input, key("input")),
                tags=dict(asked.tags),
                request_hash=asked.request_hash,
                accepted_at=now,
                deadline=min(start + timedelta(seconds=workflow.timeout_seconds), end),
                queue_deadline=None if queue_timeout is None else start + timedelta(seconds=queue_timeout),
                not_before=start if asked.delay_seconds else None,
                slot=reserved.slot,
                origin=None if asked.fork is None else await self._origin(asked.fork, key("checkpoints")),
            )
        except InfrastructureError:
            # No envelope left this process, whatever became of the object: the slot is nobody's.
            await self._give_back(workflow.class_name, reserved.slot, since=now)
            raise
        return Prepared(
            asked=asked,
            slot=reserved.slot,
            queue=QueueName(class_name=workflow.class_name, role=lane),
            run=first_version(envelope),
            outgoing=Outgoing(message=envelope, delay_seconds=math.ceil(asked.delay_seconds)),
            estimate=estimate(
                max(0, reserved.queued - 1), reserved.drain_per_second, delay_seconds=asked.delay_seconds
            ),
        )

    async def conclude(self, prepared: Prepared, error: NotSent | None) -> Submitted:
        """The accepted run, once its envelope was sent (no `error`). Raises the error, `KeyReused`, or another
        `InfrastructureError` when the row can't be created.
        """
        if error is not None:
            # What is only not answered may be out, and then needs its slot.
            if isinstance(error, (Throttled, Unavailable, LimitExceeded)):
                await self._give_back(prepared.queue.class_name, prepared.slot, since=prepared.run.created_at)
            raise error
        run = prepared.run
        recorded = await self._create(run)
        if recorded is None or recorded.submission == run.submission:
            # The row is ours; where a worker was faster than this put, its record is the news.
            count(Metric.RUNS_ACCEPTED, of=(run.class_name,))
            logger().debug("accepted", extra={"run_id": run.id, "version": 1, "workflow": run.workflow})
            return Submitted(run=recorded or run, replayed=False, estimate=prepared.estimate)
        # Two submits with one key at once: the other's row stands, our envelope is void at its claim.
        await self._give_back(prepared.queue.class_name, prepared.slot, since=prepared.run.created_at)
        return replay(recorded, prepared.asked)

    async def _stored(self, value: Value, key: str) -> Value:
        if isinstance(value, BlobRef):
            return value
        data = dump(value)
        return value if len(data) <= self.services.settings.inline_bytes else await self.services.blobs.put(key, data)

    async def _origin(self, fork: TakenOver, key: str) -> ForkOrigin:
        # Only once there is a slot: a fork that is refused, or is there, leaves nothing in the bucket.
        return fork.stored(await self.services.blobs.put(key, dump(fork.kept)))

    async def _create(self, run: Run) -> Run | None:
        """Put the row if absent; returns the record that stands in its way, if any.

        The envelope is out, so the run will be executed: the put is repeated for a while, so that
        the client gets the id. A put that was carried out and not answered meets itself.
        """

        async def create() -> Run | None:
            if (self.services.clock.now() - run.created_at).total_seconds() > self.services.settings.slot_void_seconds:
                # Frozen since its send: its slot may be repaired by now, and a queued row must have one (R6).
                raise _TooLate("the envelope is out, and the time to create its row is over")
            try:
                await self.services.runs.put(run, IfAbsent(), now=self.services.clock.now())
            except Conflict as conflict:
                key = RunKey(tenant=run.tenant, run_id=run.id)
                recorded = conflict.current or await self.services.runs.get(key, now=self.services.clock.now())
                if isinstance(recorded, Run):
                    return recorded
                raise Unanswered("the row in the way was gone when it was read") from conflict
            return None

        return await insist(self.services.clock, create, PUT_PATIENCE)

    async def _give_back(self, class_name: str, slot: Slot, *, since: datetime) -> None:
        """Return a slot taken at `since`; a definite refusal is repeated, an unanswered return never (R6).

        Nor is one returned that was taken so long ago that it may be repaired by now: the process was frozen.
        """

        def in_time() -> bool:
            return (self.services.clock.now() - since).total_seconds() <= self.services.settings.slot_void_seconds

        async def release() -> None:
            if not in_time():
                raise Unanswered("it was taken too long ago")
            await self.services.slots.give_back(class_name, slot, in_time=in_time)

        try:
            await insist(self.services.clock, release, RELEASE_PATIENCE)
            return
        except InfrastructureError as error:
            why = str(error)
        # A leak makes the bound a slot too small until the sweeper has healed it: worth a line, no more.
        count(Metric.SLOTS_LEAKED)
        logger().warning("a queue slot could not be returned", extra={"class_name": class_name, "error": why})


def run_key(asked: Submission) -> RunKey | None:
    """Where the run of a keyed submission is: its id follows from tenant and key. None without a key."""
    if asked.key is None:
        return None
    return RunKey(tenant=asked.tenant, run_id=_id_of(asked.tenant.encode() + b"\0" + asked.key.encode()))


def _drawn_id(ids: Ids) -> str:
    return _id_of((ids.token() + ids.token()).encode())


def _id_of(seed: bytes) -> str:
    return "r" + base64.b32encode(hashlib.sha256(seed).digest()).decode("ascii")[:25].lower()


def replay(recorded: Run, asked: Submission) -> Submitted:
    """The run that an earlier submission with this key made. Raises `KeyReused` when that had another body."""
    if recorded.request_hash != asked.request_hash:
        raise KeyReused("this idempotency key came before, with another body")
    count(Metric.DUPLICATES)
    return Submitted(run=recorded, replayed=True)
