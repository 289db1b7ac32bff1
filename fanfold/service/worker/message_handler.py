"""From a received message to what becomes of it: claim its run and hold it, drop it, or hand it back (R2–R5, R7).

A runner serves many messages at once; none of them can take another along. Suspects, runs whose
last worker died, are never worked on beside others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import Condition, FirstClaim, IfVersion, RunKey
from fanfold.engine.record.messages import RESUME, Envelope, Message, Received, Wake, first_version
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.delivery import (
    SUSPECT_RECEIVES,
    Claim,
    Defer,
    Discard,
    Isolate,
    NotifyHolder,
    PollMaps,
    Verdict,
    claimed_first,
    due_maps,
    on_envelope,
    on_wake,
    too_early,
)
from fanfold.engine.rules.engine_limits import ENVELOPE_LIFE
from fanfold.engine.rules.events import Claimed, Event, MapCompletionSignalled, MapStillRunning, MapThrottled
from fanfold.service.engine_limits import engine_limits
from fanfold.service.telemetry.reporting import Metric, about, count, logger
from fanfold.service.wiring import Services
from fanfold.service.worker.clockcheck import clock_off
from fanfold.service.worker.dispositions import Ack, Disposition, Redeliver, Redelivery, RunIsolated, wake_of
from fanfold.service.worker.map_polling import MapPolling
from fanfold.service.worker.ownership import Ended, OwnershipLost, count_loss
from fanfold.service.worker.run_coordinator import News, RunCoordinator
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache

LOOKS = 3
"""How often one delivery decides anew after a lost race, before the message is handed back."""


class MessageHandler:
    """Works on messages, many at once.

    `worker` is this process's name in the journal. `isolate` works on a suspect in a process of its
    own; without it (a Lambda whose `resume` mapping has batches of one) suspects are worked on here.
    `alone` says that this process has a single message in hand, whatever queue it came from: then a
    suspect is apart already.
    """

    def __init__(
        self,
        services: Services,
        workflows: WorkflowCache,
        attempts: TaskRunner,
        *,
        worker: str,
        isolate: RunIsolated | None = None,
        alone: bool = False,
    ) -> None:
        self._services = services
        self._workflows = workflows
        self._attempts = attempts
        self._worker = worker
        self._isolate = isolate
        self._settings = services.settings
        self._polling = MapPolling(services, workflows)
        self._redelivery = Redelivery(services)
        self._alone = alone
        self._stop_before: datetime | None = None
        self._stopping = False
        self._broken_off = False
        self._coordinators: set[RunCoordinator] = set()

    def hurry(self, stop_before: datetime) -> None:
        """Told to stop: let each run go as soon as nothing of it runs; start nothing that runs at `stop_before`."""
        self._stop_before = stop_before
        self._stopping = True
        for coordinator in self._coordinators:
            coordinator.hurry(stop_before)

    def break_off(self) -> None:
        """There is no more time: stop what runs, and let every run go, due now. None of it counts as a crash."""
        self._broken_off = True
        for coordinator in self._coordinators:
            coordinator.break_off()

    async def handle(self, received: Received, *, stop_before: datetime | None = None) -> Disposition:
        """Work on one message until its run is out of hand. Raises only a bug that was met before."""
        message = received.message
        if message is None:
            return self._redelivery.unreadable(received)
        if stop_before is not None:
            self._stop_before = stop_before
        with about(message.run_id):
            return await self._handle(received, message)

    async def _handle(self, received: Received, message: Message) -> Disposition:
        try:
            if (offset := clock_off(self._services)) is not None:
                return await self._redelivery.decline(received, message, offset)
            if received.receives >= SUSPECT_RECEIVES and not self._is_apart(received):
                return await self._redelivery.apart(message)
            # An envelope in `resume` was sent apart unread: the record says whether there is anything to be afraid of.
            if isinstance(message, Wake) or (received.queue.role == RESUME and self._isolate is not None):
                return await self._follow(received, message, await self._record(message))
            return await self._open(received, message)
        except InfrastructureError as error:
            return await self._redelivery.put_back(received, message, error)
        except Exception as error:
            if message.raised:
                raise
            return await self._redelivery.note_bug(message, error)

    # --- decisions ------------------------------------------------------------------------------

    async def _open(self, received: Received, envelope: Envelope) -> Disposition:
        """A fresh envelope is claimed blindly, in one write; an old one is looked up first."""
        if (early := too_early(envelope.not_before, self._now(), engine_limits(self._settings))) is not None:
            return self._back_until(early)
        age = self._now() - envelope.accepted_at
        # A run created from so old an envelope returns no slot: its hour of the counter may be repaired by then (R6).
        if age.total_seconds() > self._services.settings.slot_void_seconds:
            record = await self._record(envelope)
            if record is None and age > ENVELOPE_LIFE:
                count(Metric.DROPPED)
                logger().warning("an envelope older than 14 days creates no run", extra={"run_id": envelope.run_id})
                return Ack()
            return await self._follow(received, envelope, record)
        first = self._looked_at(envelope) if self._claims_first(received, envelope, None) else None
        outcome = await self._hold(
            first_version(envelope),
            FirstClaim(submission=envelope.submission),
            repeated=self._repeated(received),
            first=first,
        )
        if isinstance(outcome, OwnershipLost) and not outcome.held:
            return await self._follow(received, envelope, outcome.record)
        return self._after(outcome)

    async def _follow(self, received: Received, message: Message, record: Run | None) -> Disposition:
        """Do what the record says of the message; after a lost race, what the new record says."""
        for _ in range(LOOKS):
            verdict = self._verdict(received, message, record)
            match verdict:
                case Discard():
                    if isinstance(message, Envelope):
                        count(Metric.DUPLICATES)
                    logger().debug("dropped", extra={"run_id": message.run_id, "why": verdict.why})
                    return Ack()
                case Defer():
                    if record is not None and record.status is Status.RUNNING:  # else it only came a moment early
                        count(Metric.DUPLICATES)
                    return self._back_until(verdict.until)
                case Isolate() if not self._is_apart(received):
                    # There is a record: a look is all that has to be asked for.
                    return await self._redelivery.apart(wake_of(message))
                case Isolate() | Claim() if self._isolate is not None and _is_suspect(received, verdict):
                    return await self._isolate(received)
                case NotifyHolder() if record is not None:
                    record = await self._polling.note(
                        record, [MapCompletionSignalled(step=verdict.map_step)], engine_limits(self._settings)
                    )
                    if record is None:
                        return Ack()
                case PollMaps() if record is not None and not self._claims_first(received, message, record):
                    signalled = message.map_step if isinstance(message, Wake) else None
                    seen = await self._polling.at(record, verdict.maps, signalled=signalled)
                    going_on = [sight for sight in seen if isinstance(sight, MapStillRunning | MapThrottled)]
                    if len(going_on) == len(seen) and not verdict.due_besides:
                        record = await self._polling.note(record, going_on, engine_limits(self._settings))
                        if record is None:
                            return Ack()
                        continue
                    outcome = await self._hold(
                        *self._basis(message, record), news=seen, repeated=self._repeated(received)
                    )
                    if not isinstance(outcome, OwnershipLost) or outcome.held:
                        return self._after(outcome)
                    record = outcome.record
                case _:
                    first = self._looked_at(message) if self._claims_first(received, message, record) else None
                    basis, repeated = self._basis(message, record), self._repeated(received)
                    outcome = await self._hold(*basis, repeated=repeated, first=first)
                    if not isinstance(outcome, OwnershipLost) or outcome.held:
                        return self._after(outcome)
                    record = outcome.record
        return Redeliver(seconds=1)

    def _back_until(self, moment: datetime) -> Redeliver:
        return Redeliver(seconds=max(1, math.ceil((moment - self._now()).total_seconds())))

    def _claims_first(self, received: Received, message: Message, record: Run | None) -> bool:
        apart = received.queue.role == RESUME
        return claimed_first(message, record, self._now(), receives=received.receives, apart=apart)

    def _looked_at(self, message: Message) -> News:
        """What is to be found out under a claim that is committed first: what has become of the maps that are due."""
        signalled = message.map_step if isinstance(message, Wake) else None
        return lambda run: self._polling.at(run, due_maps(run, self._now(), signalled=signalled), signalled=signalled)

    def _is_apart(self, received: Received) -> bool:
        """Whether nothing else is worked on beside this message, or will not be once it is isolated (R7)."""
        return self._alone or received.queue.role == RESUME

    def _repeated(self, received: Received) -> bool:
        """Whether handling the message has raised before, and it is apart: nothing beside it is to blame if it does."""
        return received.message is not None and received.message.raised and self._is_apart(received)

    def _verdict(self, received: Received, message: Message, record: Run | None) -> Verdict:
        limits = engine_limits(self._services.settings)
        if isinstance(message, Wake):
            return on_wake(message, record, self._now(), limits, receives=received.receives)
        return on_envelope(message, record, self._now(), limits, receives=received.receives)

    @staticmethod
    def _basis(message: Message, record: Run | None) -> tuple[Run, Condition]:
        """The record to claim. Only an envelope creates one, and an old one that does has no slot to return."""
        if record is not None:
            return record, IfVersion(version=record.version, submission=record.submission)
        assert isinstance(message, Envelope), "a wake without a record is dropped"
        return replace(first_version(message), slot=None), FirstClaim(submission=message.submission)

    async def _hold(
        self,
        base: Run,
        condition: Condition,
        *,
        news: Sequence[Event] = (),
        repeated: bool = False,
        first: News | None = None,
    ) -> Ended | OwnershipLost:
        workflow = await self._workflows.of(base)
        missing = self._attempts.missing(workflow.tasks)
        if missing:
            count(Metric.TASKS_NOT_LOADED)
            facts = {"run_id": base.id, "workflow": base.workflow, "tasks": sorted(missing)}
            logger().error("tasks of a run can't be called here; the steps that need them are put off", extra=facts)
        limits = engine_limits(self._services.settings, self._stop_before, missing=missing, stopping=self._stopping)
        claim = Claimed(owner=self._services.ids.token(), worker=self._worker)
        coordinator = RunCoordinator(
            self._services,
            self._attempts,
            workflow,
            limits,
            base,
            condition,
            claim=claim,
            news=news,
            repeated=repeated,
            first=first,
        )
        if self._broken_off:
            coordinator.break_off()
        self._coordinators.add(coordinator)
        try:
            outcome = await coordinator.run()
        finally:
            self._coordinators.discard(coordinator)
        if isinstance(outcome, OwnershipLost) and outcome.record is not base:
            count_loss(outcome, base.class_name)
        return outcome

    # --- what follows ---------------------------------------------------------------------------

    def _after(self, outcome: Ended | OwnershipLost) -> Disposition:
        if isinstance(outcome, OwnershipLost):
            logger().warning("a run was lost while it was held", extra={"run_id": outcome.run_id})
            # Somebody else's run needs this message no more; one whose lease ran out does.
            return Ack() if outcome.record is not None else Redeliver(seconds=1)
        run = outcome.run
        if not run.terminal:
            facts = {"run_id": run.id, "status": str(run.status), "epoch": run.epoch, "version": run.version}
            logger().debug("run let go", extra=facts)
        return Ack()

    async def _record(self, message: Message) -> Run | None:
        return await self._services.runs.get(RunKey(tenant=message.tenant, run_id=message.run_id), now=self._now())

    def _now(self) -> datetime:
        return self._services.clock.now()


def _is_suspect(received: Received, verdict: Verdict) -> bool:
    """Whether a run that can be claimed may have killed a worker, as far as its record and this message say (R7)."""
    unread = isinstance(received.message, Envelope) or received.receives >= SUSPECT_RECEIVES
    return isinstance(verdict, Isolate) or (received.queue.role == RESUME and unread)
