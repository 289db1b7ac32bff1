"""The commits of one claimed or held run: what has happened so far becomes one put, and what follows from it (R3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fanfold.engine.errors import InfrastructureError, LimitExceeded, Throttled, Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json, Loaded
from fanfold.engine.ports import Moment
from fanfold.engine.record.run import Run, StepStatus
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.effects import StartAttempt
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import Claimed, Event, RecordReloaded, RecordTooLarge, Renewed, Undecidable
from fanfold.engine.rules.scheduling import next_timer
from fanfold.service.commit import Commit, Committed, LostAnswer, RecordWriter, carry_out, put, tell
from fanfold.service.effects import EffectRunner
from fanfold.service.payloads import Payloads
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services
from fanfold.service.worker.outcomes import MAX_MESSAGE, raised
from fanfold.service.worker.ownership import Judgement, Ownership, OwnershipLost, Write
from fanfold.service.worker.running_attempts import Attempt

PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
"""Pauses after a put that was refused or not answered; the last one repeats."""

TRIES_TO_CLAIM = 3
"""How often a claim is tried against refusals before its message goes back on its way."""


class RunCommits:
    """Writes one run as its owner.

    Events gather in `inbox` and leave it when a commit with them is known to be done. Inputs of attempts that a commit
    starts gather in `inputs`. A `bare` claim is put with nothing else decided. `repeated`: see `RunCoordinator`.
    """

    def __init__(
        self,
        services: Services,
        workflow: Workflow,
        own: Ownership,
        payloads: Payloads,
        effects: EffectRunner,
        *,
        limits: EngineLimits,
        claim: Claimed,
        news: Sequence[Event],
        repeated: bool,
        bare: bool,
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._workflow = workflow
        self._own = own
        self._payloads = payloads
        self._effects = effects
        self._claim = claim
        self._repeated = repeated
        self._writer = RecordWriter(services, workflow, payloads)
        self._refusals = 0
        self._in_doubt = False
        self.limits = limits
        self.bare = bare
        self.inbox: list[Event] = [claim, *news]
        self.inputs: dict[Attempt, Json] = {}
        self.stuck = False
        """A timer was due, and nothing followed from it."""

    async def write(self) -> OwnershipLost | None:
        """Decide what has happened so far, commit it in one put, and let follow what follows."""
        events = tuple(self.inbox)
        own = self._own
        renewal: tuple[Event, ...] = ()
        if own.held and own.lease.renewal_left() <= 0:
            renewal = (Renewed(),)
        try:
            events, decision = await self._decided(events, renewal)
            if not decision.changed:
                del self.inbox[: len(events)]
                # Only a timer that is due: one may ring a moment early, the clock's grain being coarser.
                self.stuck = not events and self.next_timer() <= self._clock.now()
                return None if own.held else own.lost(own.record)
            self.stuck = False
            run = await self._writer.next(own.record, decision)
            commit = Commit(
                before=own.record, run=run, decision=decision, workflow=self._workflow, sent=Moment.of(self._clock)
            )
            own.unanswered[run.write_id] = Write(commit=commit, events=len(events), renewal=bool(renewal))
            # Made for each put: kept, it would hold this, and the run's payloads, in a circle.
            lost = LostAnswer(recognise=own.recognise, pause=self._pause)
            made = await put(self._services, commit, lost, condition=own.condition)
        except InfrastructureError as error:
            return await self._refused(error)
        except LimitExceeded as error:
            if not self._writer.all_of_it:
                self._writer.all_of_it = True
                return None
            if not own.held or any(isinstance(event, RecordTooLarge) for event in events):
                raise
            # Nothing was written. What made the record too big is dropped, and the run ends saying so.
            self.inbox[: len(events)] = [RecordTooLarge(detail=str(error))]
            return None
        except Exception as error:
            if not self._repeated or any(isinstance(event, Undecidable) for event in events):
                raise
            logger().exception("what follows for a run can't be decided; it fails", extra={"run_id": own.record.id})
            failure = raised(error).failure
            detail = f"what follows can't be decided: {failure.type}: {failure.message}"[:MAX_MESSAGE]
            self.inbox[: len(events)] = [Undecidable(owner=self._claim.owner, detail=detail)]
            return None
        if isinstance(made, Committed):
            self._answered(made)
            return None
        return await self._met(made.record)

    async def go_by(self, record: Run | None) -> OwnershipLost | None:
        """Go on from a record that was read, if it is ours or still the one to be replaced."""
        try:
            done = None if record is None else await self._own.recognise(record)
        except InfrastructureError as error:
            return await self._refused(error)
        if done is None or record is None:
            return await self._met(record)
        self._answered(Committed(commit=done, record=record))
        return None

    def next_timer(self) -> datetime:
        """When something falls due that needs a decision though nothing happens."""
        timer, stop_before = next_timer(self._own.record), self.limits.stop_before
        idle = not any(state.status is StepStatus.RUNNING for state in self._own.record.steps.values())
        return min(timer, stop_before) if stop_before is not None and idle else timer

    async def _met(self, record: Run | None) -> OwnershipLost | None:
        """The record that stands goes back to none of our puts."""
        match self._own.judge(record):
            case Judgement.CHANGED:
                assert record is not None, "no record is nobody's"
                self._own.go_on_from(record)
                self.inbox.append(RecordReloaded())
                return None
            case Judgement.AS_IT_WAS:
                return await self._refused()
            case Judgement.LOST:
                return self._own.lost(record)

    async def _decided(
        self, events: tuple[Event, ...], renewal: tuple[Event, ...]
    ) -> tuple[tuple[Event, ...], Decision]:
        """What follows from the events; where that can't be had for want of a payload, the run stays in hand."""
        try:
            decision = await self._payloads.provide(
                self._own.record, lambda loaded: self._decide((*events, *renewal), loaded)
            )
        except InfrastructureError:
            if not (self._own.held and renewal):
                raise
            return (), self._decide(renewal, {}, goes_on=False)
        return events, decision

    def _decide(self, events: Sequence[Event], loaded: Loaded, *, goes_on: bool = True) -> Decision:
        return decide(
            self._own.record,
            self._workflow,
            events,
            self._clock.now(),
            limits=self.limits,
            loaded=loaded,
            goes_on=goes_on and (self._own.held or not self.bare),
            clock=self._services.cpu,
        )

    def _answered(self, done: Committed) -> None:
        """The put is done: its events leave the inbox, it is counted, its effects follow."""
        commit, write = done.commit, self._own.unanswered[done.commit.run.write_id]
        del self.inbox[: write.events]
        self._refusals = 0
        self._own.hold(done.record, sent=commit.sent.monotonic)
        tell(commit, by_workflow=self._services.settings.workflow_metrics)
        if write.renewal:
            count(Metric.LEASE_RENEWALS, of=(commit.run.class_name,))
        written_over = done.record.write_id != commit.run.write_id
        if commit.decision.more or written_over:
            self.inbox.append(RecordReloaded())
        carry_out(done, self._effects, begin=self._begin)

    def _begin(self, effect: StartAttempt) -> None:
        """What starts is started from the record, by the loop; its input was evaluated already."""
        if not effect.large:
            self.inputs[Attempt(effect.step, effect.attempt)] = effect.input

    async def _refused(self, error: InfrastructureError | None = None) -> OwnershipLost | None:
        """Pause before the next try. A claim that is refused too often gives up; a holder's lease does.

        A claim that was throttled each time says so: of nothing else it is certain that it will not be done later.
        """
        self._refusals += 1
        self._in_doubt = self._in_doubt or not isinstance(error, Throttled)
        if not self._own.held and self._refusals >= TRIES_TO_CLAIM:
            if error is None or self._in_doubt:
                raise Unanswered("the claim could not be made")
            raise error
        await self._pause()
        return None

    async def _pause(self) -> None:
        await self._clock.sleep(PAUSES_SECONDS[min(self._refusals, len(PAUSES_SECONDS) - 1)])
