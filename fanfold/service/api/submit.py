"""Submit: reserve a slot, send the envelope, create the record. An interruption loses no accepted run.

docs/decisions/0021-submit.md has a table of what remains after an interruption at each point.
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
    """The time to create a record is over."""


PUT_PATIENCE = Patience(
    pauses_seconds=doubling(0.05, 1.0), budget_seconds=10.0, final=lambda error: isinstance(error, _TooLate)
)
"""Seconds for which the put is retried after the envelope was sent; API Gateway allows 30 s for the call."""

RELEASE_PATIENCE = Patience(
    pauses_seconds=(0.05, 0.1), budget_seconds=0.2, final=lambda error: not isinstance(error, (Throttled, Unavailable))
)
"""A release is repeated after a definite refusal only, and the caller waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A client's submit. `request_hash` (SHA-256, hex) covers the body as sent."""

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
    """The accepted run, whether an earlier submit with the same key created it, and if not, its estimate."""

    run: Run
    replayed: bool
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A submission with its slot, ready to be sent to `queue`. `run` is version 1 of its record."""

    asked: Submission
    slot: Slot
    queue: QueueName
    run: Run
    outgoing: Outgoing
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Submitter:
    """Accepts runs: one reservation, one send, one put, and one read of the catalog if no version is named."""

    services: Services
    workflows: WorkflowCache

    async def submit(self, asked: Submission) -> Submitted:
        """The accepted run.

        Raises `NotFound`, `InvalidDocument` (an unknown lane or class), `LaneDenied`, `QueueFull`,
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
        """The workflow of a submission, if it may run. Raises `NotFound`, `InvalidDocument` or `LaneDenied`."""
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
        """Reserve a slot and store a large input before the send. Call `conclude` in any case."""
        now = self.services.clock.now()
        lane = self._lane(asked, workflow)
        run_id = (run_key(asked) or RunKey(tenant=asked.tenant, run_id=_drawn_id(self.services.ids))).run_id
        submission = self.services.ids.token()
        key = partial(payload_key, asked.tenant, run_id, submission)
        # Without an answer at most one slot too many is taken, and the sweeper repairs it.
        reserved = await self.services.slots.reserve(workflow.class_name, now=now)
        # Timeouts count from when the run may begin. Otherwise a run with a long delay could only expire.
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
            # No envelope was sent, so nobody needs the slot.
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
        `InfrastructureError` when the record can't be created.
        """
        if error is not None:
            # A send without an answer may have succeeded, and then its run needs the slot.
            if isinstance(error, (Throttled, Unavailable, LimitExceeded)):
                await self._give_back(prepared.queue.class_name, prepared.slot, since=prepared.run.created_at)
            raise error
        run = prepared.run
        recorded = await self._create(run)
        if recorded is None or recorded.submission == run.submission:
            # The record is ours. A worker may have written it before this put.
            count(Metric.RUNS_ACCEPTED, of=(run.class_name,))
            logger().debug("accepted", extra={"run_id": run.id, "version": 1, "workflow": run.workflow})
            return Submitted(run=recorded or run, replayed=False, estimate=prepared.estimate)
        # Two submits with the same key: the other one's record exists, and our envelope's claim fails.
        await self._give_back(prepared.queue.class_name, prepared.slot, since=prepared.run.created_at)
        return replay(recorded, prepared.asked)

    async def _stored(self, value: Value, key: str) -> Value:
        if isinstance(value, BlobRef):
            return value
        data = dump(value)
        return value if len(data) <= self.services.settings.inline_bytes else await self.services.blobs.put(key, data)

    async def _origin(self, fork: TakenOver, key: str) -> ForkOrigin:
        # Only after the slot was taken, so that a refused or replayed fork leaves nothing in the bucket.
        return fork.stored(await self.services.blobs.put(key, dump(fork.kept)))

    async def _create(self, run: Run) -> Run | None:
        """Put the record if absent; returns an existing record, if any.

        The envelope was sent, so the run will be executed. The put is retried for a while, so that the client gets the
        id. A put whose answer was lost finds its own record.
        """

        async def create() -> Run | None:
            if (self.services.clock.now() - run.created_at).total_seconds() > self.services.settings.slot_void_seconds:
                # The process was frozen: the slot may be repaired by now, and a queued record needs one (R6).
                raise _TooLate("the envelope is out, and the time to create its record is over")
            try:
                await self.services.runs.put(run, IfAbsent(), now=self.services.clock.now())
            except Conflict as conflict:
                key = RunKey(tenant=run.tenant, run_id=run.id)
                recorded = conflict.current or await self.services.runs.get(key, now=self.services.clock.now())
                if isinstance(recorded, Run):
                    return recorded
                raise Unanswered("the record in the way was gone when it was read") from conflict
            return None

        return await insist(self.services.clock, create, PUT_PATIENCE)

    async def _give_back(self, class_name: str, slot: Slot, *, since: datetime) -> None:
        """Release a slot taken at `since`. A definite refusal is repeated, a call without an answer never (R6).

        If the process was frozen for so long that the slot may be repaired by now, it is not released.
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
        # A leaked slot lowers the bound by one until the sweeper repairs it, which is worth a log line.
        count(Metric.SLOTS_LEAKED)
        logger().warning("a queue slot could not be released", extra={"class_name": class_name, "error": why})


def run_key(asked: Submission) -> RunKey | None:
    """The key of the run of a keyed submission: its id is derived from tenant and key. None without a key."""
    if asked.key is None:
        return None
    return RunKey(tenant=asked.tenant, run_id=_id_of(asked.tenant.encode() + b"\0" + asked.key.encode()))


def _drawn_id(ids: Ids) -> str:
    return _id_of((ids.token() + ids.token()).encode())


def _id_of(seed: bytes) -> str:
    return "r" + base64.b32encode(hashlib.sha256(seed).digest()).decode("ascii")[:25].lower()


def replay(recorded: Run, asked: Submission) -> Submitted:
    """The run that an earlier submission with this key created. Raises `KeyReused` if that had another body."""
    if recorded.request_hash != asked.request_hash:
        raise KeyReused("this idempotency key came before, with another body")
    count(Metric.DUPLICATES)
    return Submitted(run=recorded, replayed=True)
