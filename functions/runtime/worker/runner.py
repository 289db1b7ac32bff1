"""From a received message to what becomes of it: claim its run and hold it, drop it, or hand it back (R2–R5, R7).

A runner serves many messages at once; none of them can take another along. Suspects, runs whose
last worker died, are never worked on beside others.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions.engine.due import (
    SUSPECT_RECEIVES,
    Apart,
    Claim,
    Drop,
    HandBack,
    Look,
    Tell,
    Verdict,
    claimed_first,
    due_maps,
    on_envelope,
    on_wake,
    too_early,
)
from functions.engine.errors import InfrastructureError, Throttled
from functions.engine.events import Claimed, Event, MapRang, MapSeen, MapThrottled
from functions.engine.message import RESUME, Envelope, Message, QueueName, Received, Wake, first_version
from functions.engine.ports import Condition, FirstClaim, Replaces, RunKey
from functions.engine.run import Run, Status
from functions.engine.terms import ENVELOPE_LIFE, MAX_DELAY
from functions.runtime.telemetry import Metric, about, count, logger
from functions.runtime.terms import terms_of
from functions.runtime.wiring import Services
from functions.runtime.worker.attempts import Attempts
from functions.runtime.worker.clockcheck import clock_off
from functions.runtime.worker.looks import Looks
from functions.runtime.worker.shell import Ended, Lost, News, Shell
from functions.runtime.workflows import WorkflowCache

CLOCK_OFF_SECONDS = 5
"""How long a message that came to a process whose clock is off waits for another. It is nobody's fault: this does not
grow and counts nothing. Without any a lone process would spin."""

OUTAGE_DELAY = timedelta(seconds=60)
"""First delay of a message that met an infrastructure fault; it doubles with each further one (R5)."""

THROTTLE_DELAY = timedelta(seconds=5)
"""The same where it was refused for load, and nothing was done: an outage's minute would leave a limit unused."""

UNREADABLE_SECONDS = 60
"""How long a message that can't be read is hidden; after ten deliveries it is a dead letter."""

LOOKS = 3
"""How often one delivery decides anew after a lost race, before the message is handed back."""


def back_after(error: InfrastructureError, outages: int) -> timedelta:
    """When a message that met this fault is to come again, having met so many before."""
    first = THROTTLE_DELAY if isinstance(error, Throttled) else OUTAGE_DELAY
    return min(first * (1 << min(outages, 8)), MAX_DELAY)


@dataclass(frozen=True, slots=True)
class Done:
    """The message has served: delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """Show the message again after this many seconds."""

    seconds: int


Disposition = Done | Back
Isolate = Callable[[Received], Awaitable[Disposition]]


def wake_of(message: Message) -> Wake:
    """A message that asks for a look at the same run."""
    if isinstance(message, Wake):
        return message
    return Wake(
        tenant=message.tenant,
        run_id=message.run_id,
        submission=message.submission,
        class_name=message.class_name,
    )


class Runner:
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
        attempts: Attempts,
        *,
        worker: str,
        isolate: Isolate | None = None,
        alone: bool = False,
    ) -> None:
        self._services = services
        self._workflows = workflows
        self._attempts = attempts
        self._worker = worker
        self._isolate = isolate
        self._settings = services.settings
        self._looks = Looks(services, workflows)
        self._alone = alone
        self._horizon: datetime | None = None
        self._stopping = False
        self._broken_off = False
        self._shells: set[Shell] = set()

    def hurry(self, horizon: datetime) -> None:
        """Told to stop: let every run go as soon as nothing of it runs; start nothing that still runs at `horizon`."""
        self._horizon = horizon
        self._stopping = True
        for shell in self._shells:
            shell.hurry(horizon)

    def break_off(self) -> None:
        """There is no more time: stop what runs, and let every run go, due now. None of it counts as a crash."""
        self._broken_off = True
        for shell in self._shells:
            shell.break_off()

    async def handle(self, received: Received, *, horizon: datetime | None = None) -> Disposition:
        """Work on one message until its run is out of hand. Raises nothing but bugs."""
        message = received.message
        if message is None:
            count(Metric.UNREADABLE)
            logger().error(
                "a message can't be read" if not received.newer else "a message is newer than this code",
                extra={"queue": str(received.queue), "message_id": received.message_id},
            )
            return Back(seconds=UNREADABLE_SECONDS)
        if horizon is not None:
            self._horizon = horizon
        with about(message.run_id):
            return await self._handle(received, message)

    async def _handle(self, received: Received, message: Message) -> Disposition:
        try:
            if (offset := clock_off(self._services)) is not None:
                return await self._decline(received, message, offset)
            if received.receives >= SUSPECT_RECEIVES and not self._is_apart(received):
                return await self._send_apart(message)
            # An envelope in `resume` was sent apart unread: the record says whether there is anything to be afraid of.
            if isinstance(message, Wake) or (received.queue.role == RESUME and self._isolate is not None):
                return await self._follow(received, message, await self._row(message))
            return await self._open(received, message)
        except InfrastructureError as error:
            return await self._put_back(received, message, error)

    # --- decisions ------------------------------------------------------------------------------

    async def _open(self, received: Received, envelope: Envelope) -> Disposition:
        """A fresh envelope is claimed blindly, in one write; an old one is looked up first."""
        if (early := too_early(envelope.not_before, self._now(), terms_of(self._settings))) is not None:
            return self._back_until(early)
        age = self._now() - envelope.accepted_at
        # A run created from so old an envelope returns no place: its hour of the counter may be repaired by then (R6).
        if age.total_seconds() > self._services.settings.place_void_seconds:
            row = await self._row(envelope)
            if row is None and age > ENVELOPE_LIFE:
                count(Metric.DROPPED)
                logger().warning("an envelope older than 14 days creates no run", extra={"run_id": envelope.run_id})
                return Done()
            return await self._follow(received, envelope, row)
        first = self._looked_at(envelope) if self._claims_first(received, envelope, None) else None
        outcome = await self._hold(
            first_version(envelope),
            FirstClaim(submission=envelope.submission),
            repeated=self._repeated(received),
            first=first,
        )
        if isinstance(outcome, Lost) and not outcome.held:
            return await self._follow(received, envelope, outcome.row)
        return self._after(outcome)

    async def _follow(self, received: Received, message: Message, row: Run | None) -> Disposition:
        """Do what the row says of the message; after a lost race, what the new row says."""
        for _ in range(LOOKS):
            verdict = self._verdict(received, message, row)
            match verdict:
                case Drop():
                    if isinstance(message, Envelope):
                        count(Metric.DUPLICATES)
                    logger().debug("dropped", extra={"run_id": message.run_id, "why": verdict.why})
                    return Done()
                case HandBack():
                    if row is not None and row.status is Status.RUNNING:  # else it only came a moment early
                        count(Metric.DUPLICATES)
                    return self._back_until(verdict.until)
                case Apart() if not self._is_apart(received):
                    # There is a row: a look is all that has to be asked for.
                    return await self._send_apart(wake_of(message))
                case Apart() | Claim() if self._isolate is not None and _is_suspect(received, verdict):
                    return await self._isolate(received)
                case Tell() if row is not None:
                    row = await self._looks.note(row, [MapRang(step=verdict.map_step)], terms_of(self._settings))
                    if row is None:
                        return Done()
                case Look() if row is not None and not self._claims_first(received, message, row):
                    rang = message.map_step if isinstance(message, Wake) else None
                    seen = await self._looks.at(row, verdict.maps, rang=rang)
                    going_on = [sight for sight in seen if isinstance(sight, MapSeen | MapThrottled)]
                    if len(going_on) == len(seen) and not verdict.due_besides:
                        row = await self._looks.note(row, going_on, terms_of(self._settings))
                        if row is None:
                            return Done()
                        continue
                    outcome = await self._hold(*self._basis(message, row), news=seen, repeated=self._repeated(received))
                    if not isinstance(outcome, Lost) or outcome.held:
                        return self._after(outcome)
                    row = outcome.row
                case _:
                    first = self._looked_at(message) if self._claims_first(received, message, row) else None
                    basis, repeated = self._basis(message, row), self._repeated(received)
                    outcome = await self._hold(*basis, repeated=repeated, first=first)
                    if not isinstance(outcome, Lost) or outcome.held:
                        return self._after(outcome)
                    row = outcome.row
        return Back(seconds=1)

    def _back_until(self, moment: datetime) -> Back:
        return Back(seconds=max(1, math.ceil((moment - self._now()).total_seconds())))

    def _claims_first(self, received: Received, message: Message, row: Run | None) -> bool:
        apart = received.queue.role == RESUME
        return claimed_first(message, row, self._now(), receives=received.receives, apart=apart)

    def _looked_at(self, message: Message) -> News:
        """What is to be found out under a claim that is committed first: what has become of the maps that are due."""
        rang = message.map_step if isinstance(message, Wake) else None
        return lambda run: self._looks.at(run, due_maps(run, self._now(), rang=rang), rang=rang)

    def _is_apart(self, received: Received) -> bool:
        """Whether nothing else is worked on beside this message, or will not be once it is isolated (R7)."""
        return self._alone or received.queue.role == RESUME

    def _repeated(self, received: Received) -> bool:
        """Whether the message came again though it is apart: nothing beside it is to blame for what happens to it."""
        return received.receives > 1 and self._is_apart(received)

    def _verdict(self, received: Received, message: Message, row: Run | None) -> Verdict:
        terms = terms_of(self._services.settings)
        if isinstance(message, Wake):
            return on_wake(message, row, self._now(), terms, receives=received.receives)
        return on_envelope(message, row, self._now(), terms, receives=received.receives)

    @staticmethod
    def _basis(message: Message, row: Run | None) -> tuple[Run, Condition]:
        """The record to claim. Only an envelope creates one, and an old one that does has no place to return."""
        if row is not None:
            return row, Replaces(version=row.version, submission=row.submission)
        assert isinstance(message, Envelope), "a wake without a row is dropped"
        return replace(first_version(message), place=None), FirstClaim(submission=message.submission)

    async def _hold(
        self,
        base: Run,
        condition: Condition,
        *,
        news: Sequence[Event] = (),
        repeated: bool = False,
        first: News | None = None,
    ) -> Ended | Lost:
        workflow = await self._workflows.of(base)
        missing = self._attempts.missing(workflow.tasks)
        if missing:
            count(Metric.TASKS_NOT_LOADED)
            facts = {"run_id": base.id, "workflow": base.workflow, "tasks": sorted(missing)}
            logger().error("tasks of a run can't be called here; the steps that need them are put off", extra=facts)
        terms = terms_of(self._services.settings, self._horizon, missing=missing, stopping=self._stopping)
        claim = Claimed(owner=self._services.ids.token(), worker=self._worker)
        shell = Shell(
            self._services, self._attempts, workflow, terms, claim=claim, news=news, repeated=repeated, first=first
        )
        if self._broken_off:
            shell.break_off()
        self._shells.add(shell)
        try:
            outcome = await shell.run(base, condition)
        finally:
            self._shells.discard(shell)
        if isinstance(outcome, Lost) and outcome.row is not base:
            _count_loss(outcome, base.class_name)
        return outcome

    # --- what follows ---------------------------------------------------------------------------

    def _after(self, outcome: Ended | Lost) -> Disposition:
        if isinstance(outcome, Lost):
            logger().warning("a run was lost while it was held", extra={"run_id": outcome.run_id})
            # Somebody else's run needs this message no more; one whose lease ran out does.
            return Done() if outcome.row is not None else Back(seconds=1)
        run = outcome.run
        if not run.terminal:
            facts = {"run_id": run.id, "status": str(run.status), "epoch": run.epoch, "version": run.version}
            logger().debug("run let go", extra=facts)
        return Done()

    async def _send_apart(self, message: Message) -> Disposition:
        """Move a message to the `resume` queue, where suspects are alone."""
        await self._services.queue.send(QueueName(class_name=message.class_name, role=RESUME), message)
        return Done()

    async def _decline(self, received: Received, message: Message, offset: float) -> Disposition:
        """A process whose clock is off works on nothing (R11): others take the message, as if it had not come here."""
        count(Metric.CLOCK_OFF)
        logger().error(f"this machine's clock is {offset:+.1f} s off AWS's", extra={"run_id": message.run_id})
        try:
            await self._services.queue.send(received.queue, message, delay_seconds=CLOCK_OFF_SECONDS)
        except InfrastructureError:
            return Back(seconds=CLOCK_OFF_SECONDS)
        return Done()

    async def _put_back(self, received: Received, message: Message, error: InfrastructureError) -> Disposition:
        """An infrastructure fault is nobody's crash: a copy goes back, so that receives count crashes only (R5)."""
        count(Metric.OUTAGES)
        logger().error(
            "a service failed; the message goes back", extra={"run_id": message.run_id, "error": repr(error)}
        )
        seconds = int(back_after(error, message.outages).total_seconds())
        try:
            copy = replace(message, outages=message.outages + 1)
            await self._services.queue.send(received.queue, copy, delay_seconds=seconds)
        except InfrastructureError:
            return Back(seconds=seconds)
        return Done()

    async def _row(self, message: Message) -> Run | None:
        return await self._services.runs.get(RunKey(tenant=message.tenant, run_id=message.run_id), now=self._now())

    def _now(self) -> datetime:
        return self._services.clock.now()


def _is_suspect(received: Received, verdict: Verdict) -> bool:
    """Whether a run that can be claimed may have killed a worker, as far as its record and this message say (R7)."""
    unread = isinstance(received.message, Envelope) or received.receives >= SUSPECT_RECEIVES
    return isinstance(verdict, Apart) or (received.queue.role == RESUME and unread)


def _count_loss(lost: Lost, class_name: str) -> None:
    """Somebody else has the run. A holder that learned it by a write was fenced off; else its lease ran out."""
    of_class = (class_name,)
    if not lost.held:
        return count(Metric.CLAIMS_LOST, of=of_class)
    count(Metric.RUNS_LOST, of=of_class)
    if lost.row is not None:
        count(Metric.FENCED_WRITES, of=of_class)
    return None
