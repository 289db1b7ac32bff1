"""One writer loop per run: decide, commit, act, until the run ends, is let go, or is lost (R3).

Results, timers, renewals and lost races are all events of this one loop, so at most one put is in
flight. The loop is level-triggered: after a put that failed or was not answered it goes by the
record that stands; while that record's owner is this loop's claim id it is its own, whichever put
made it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fanfold.engine.errors import Conflict, InfrastructureError, LimitExceeded, NotFound, Throttled, Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json, Loaded
from fanfold.engine.ports import Condition, IfVersion, Moment, RunKey
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run, Status, StepStatus
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.effects import Effect, StartAttempt
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import (
    Claimed,
    Emitted,
    Event,
    RecordReloaded,
    RecordTooLarge,
    Renewed,
    StopRequested,
    Undecidable,
)
from fanfold.engine.rules.scheduling import next_timer, watched
from fanfold.service.effects import EffectRunner
from fanfold.service.payloads import Payloads
from fanfold.service.record_writer import RecordWriter
from fanfold.service.telemetry.reporting import Metric, count, logger, observe
from fanfold.service.telemetry.run_metrics import committed, ended, new_entries
from fanfold.service.wiring import Services
from fanfold.service.worker.held_lease import HeldLease
from fanfold.service.worker.outcomes import MAX_MESSAGE, raised
from fanfold.service.worker.running_attempts import Attempt, RunningAttempts
from fanfold.service.worker.task_runner import TaskRunner

EMIT_SECONDS = 1.0
"""Progress is written at most this often, unless something else is written anyway."""

GLANCE_SECONDS = 1.0
"""While an operator's move may mean work at once, the record is read this often (R10)."""

STUCK_SECONDS = 1.0
"""When a due timer changed nothing (no time left to start what it is for), it is looked at again after this."""

PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
"""Pauses after a put that was refused or not answered; the last one repeats."""

RETURN_SECONDS = 2.0
"""How long a holder that may be about to die waits for its first commit's effects."""

TRIES_TO_CLAIM = 3
"""How often a claim is tried against refusals before its message goes back on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is terminal or let go, by this loop's own commit or by an operator's."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipLost:
    """The run is somebody else's, or the lease ran out; `held` says whether it ever was ours.

    `row` is the record that stands, where it is known.
    """

    run_id: str
    row: Run | None
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    """A put under way: how many events of the inbox it carries, and what follows when it is done.

    `entries` is what it adds to the journal, `renewal` whether it renews the lease because it was time to, and `more`
    whether its decision left steps to the next one.
    """

    run: Run
    events: int
    entries: Sequence[Entry]
    renewal: bool
    effects: tuple[Effect, ...]
    more: bool
    sent: Moment


News = Callable[[Run], Awaitable[Sequence[Event]]]
"""What is to be found out about a run beside its record: the ends of its maps."""


class RunCoordinator:
    """Claims one run and holds it. `news` is what is known already beside its record: the ends of its maps.

    `repeated`: it came here before, and nothing came of it. If what follows for it can't be decided, it ends with that.

    With `first` the claim is committed before anything is decided on it, or anything else is found out about the run,
    so that a death of it is counted (R7); then `news` is asked for under the claim.
    """

    def __init__(
        self,
        services: Services,
        attempts: TaskRunner,
        workflow: Workflow,
        limits: EngineLimits,
        *,
        claim: Claimed,
        news: Sequence[Event] = (),
        repeated: bool = False,
        first: News | None = None,
    ) -> None:
        self._runs = services.runs
        self._clock = services.clock
        self._cpu = services.cpu
        self._by_workflow = services.settings.workflow_metrics
        self._workflow = workflow
        self._limits = limits
        self._claim = claim
        self._payloads = Payloads(services.runs, services.blobs, services.clock)
        self._running = RunningAttempts(
            services, attempts, workflow, self._payloads, self._post, stop_before=lambda: self._limits.stop_before
        )
        self._effects = EffectRunner(services)
        self._writer = RecordWriter(services, workflow, self._payloads)
        self._inbox: list[Event] = [claim, *news]
        self._repeated = repeated
        self._first = first
        self._news = asyncio.Event()
        self._unanswered: dict[str, _Put] = {}
        self._inputs: dict[Attempt, Json] = {}
        self._refusals = 0
        self._in_doubt = False
        self._held = False
        self._stuck = False
        self._broken_off = False
        self._seen = 0.0
        self._waited = 0.0
        self._held_lease = HeldLease(self._clock, lease=limits.lease, skew=limits.skew, at_end=self._running.halt)

    async def run(self, base: Run, condition: Condition) -> Ended | OwnershipLost:
        """Claim the run whose record is `base` (version 1 from an envelope, or as read) and hold it to its end.

        Raises an `InfrastructureError` when the claim can't be made.
        """
        self._record, self._condition = base, condition
        self._key = RunKey(tenant=base.tenant, run_id=base.id)
        try:
            began = self._clock.monotonic()
            lost = await self._write()
            while lost is None:
                if self._held and not self._at_it():
                    took = self._clock.monotonic() - began - self._running.at_work.seconds - self._waited
                    observe(Metric.ENGINE_OVERHEAD, round(1_000 * max(0.0, took)), of=(base.class_name,))
                    return Ended(run=self._record)
                lost = await self._turn() if self._held else await self._write()
            return lost
        except asyncio.CancelledError:
            # Whoever breaks a run off has no time for what can be lost.
            self._effects.abandon()
            raise
        finally:
            self._held_lease.stop()
            try:
                await self._running.stop()
            except asyncio.CancelledError:
                self._effects.abandon()
                raise
            finally:
                await self._effects.done()

    def _at_it(self) -> bool:
        """Whether there is anything left for this holder: of a paused run, until its attempts have ended."""
        record = self._record
        paused = record.status is Status.PAUSED and record.lease_until is not None
        return record.status is Status.RUNNING or paused

    def hurry(self, stop_before: datetime) -> None:
        """Told to stop: start nothing that would still run at `stop_before`; let the run go when nothing runs."""
        self._limits = replace(self._limits, stop_before=stop_before, stopping=True)
        self._stuck = False
        self._news.set()

    def break_off(self) -> None:
        """There is no more time: stop what runs, and let the run go, due now; none of it counts as a crash."""
        self._broken_off = True
        self._news.set()

    async def _turn(self) -> OwnershipLost | None:
        """Act on the record, wait until something happens, and write what follows from it."""
        if self._held_lease.over():
            return self._lost(None)
        if self._broken_off:
            return await self._let_go()
        if self._first is not None:
            first, self._first = self._first, None
            return await self._go_on(first)
        inputs, self._inputs = self._inputs, {}
        self._running.match(self._record, inputs)
        since, at_work = self._clock.monotonic(), self._running.at_work.seconds
        await self._something()
        # What was waited for beside the attempts: a backoff, an operator.
        self._waited += self._clock.monotonic() - since - (self._running.at_work.seconds - at_work)
        if self._held_lease.over():
            return self._lost(None)
        if self._broken_off:
            return await self._let_go()
        return await self._glance() if self._only_a_glance() else await self._write()

    async def _go_on(self, first: News) -> OwnershipLost | None:
        """The claim is committed: now everything that it leads to."""
        # Should what follows kill this process, the slot of the run is released by then.
        await self._effects.settled(RETURN_SECONDS)
        try:
            news = await first(self._record)
        except InfrastructureError as error:
            logger().warning("a run can't be looked at", extra={"run_id": self._record.id, "error": repr(error)})
            self._broken_off = True
            return None
        self._inbox += [*news, RecordReloaded()]
        return await self._write()

    async def _let_go(self) -> OwnershipLost | None:
        """Stop what runs, and commit that none of it is a crash, with what has ended until then."""
        never_begun = self._running.never_begun(self._record)
        await self._running.stop()
        if self._held_lease.over():
            return self._lost(None)
        if not any(isinstance(event, StopRequested) for event in self._inbox):
            self._inbox += [*never_begun, StopRequested()]
        return await self._write()

    def _lost(self, row: Run | None) -> OwnershipLost:
        return OwnershipLost(run_id=self._record.id, row=row, held=self._held)

    # --- waiting --------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        self._inbox.append(event)
        self._news.set()

    async def _something(self) -> None:
        """Wait for a result, a timer of the record, the next renewal, or progress worth writing."""
        while (wait := self._pause_left()) > 0:
            self._news.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                return

    def _pause_left(self) -> float:
        """How long there is nothing to write, in seconds, if nothing happens."""
        if self._broken_off or any(not isinstance(event, Emitted) for event in self._inbox):
            return 0.0
        wait = self._held_lease.renewal_left()
        if self._inbox:
            wait = min(wait, self._held_lease.since + EMIT_SECONDS - self._clock.monotonic())
        wait = min(wait, self._glance_left())
        timer = (self._next_timer() - self._clock.now()).total_seconds()
        return min(wait, max(timer, STUCK_SECONDS) if self._stuck else timer)

    def _next_timer(self) -> datetime:
        timer = next_timer(self._record)
        stop_before = self._limits.stop_before
        idle = not any(state.status is StepStatus.RUNNING for state in self._record.steps.values())
        return min(timer, stop_before) if stop_before is not None and idle else timer

    def _glance_left(self) -> float:
        """How long until the record is to be looked at for an operator's move that concerns its holder at once."""
        if not watched(self._record, self._workflow):
            return math.inf
        return self._seen + GLANCE_SECONDS - self._clock.monotonic()

    def _only_a_glance(self) -> bool:
        """Whether there is nothing to write, and it is time to look."""
        # A timer that brought no change (a look at a map is under way) must not keep it from looking for ever.
        due = not self._stuck and self._next_timer() <= self._clock.now()
        nothing = not self._inbox and self._held_lease.renewal_left() > 0 and not due
        return nothing and self._glance_left() <= 0

    async def _glance(self) -> OwnershipLost | None:
        """Read the record, and go by it if somebody has written it."""
        self._seen = self._clock.monotonic()
        try:
            row = await self._runs.get(self._key, now=self._clock.now())
        except InfrastructureError:
            return None  # the next renewal sees it, or the next glance
        if row is not None and row.version == self._record.version:
            return None
        return await self._go_by(row)

    # --- writing --------------------------------------------------------------------------------

    async def _write(self) -> OwnershipLost | None:
        """Decide what has happened so far, commit it in one put, and act on it."""
        events = tuple(self._inbox)
        renewal: tuple[Event, ...] = ()
        if self._held and self._held_lease.renewal_left() <= 0:
            renewal = (Renewed(),)
        try:
            events, decision = await self._decided(events, renewal)
            if not decision.changed:
                del self._inbox[: len(events)]
                # Only a timer that is due: one may ring a moment early, the clock's grain being coarser.
                self._stuck = not events and self._next_timer() <= self._clock.now()
                return None if self._held else self._lost(self._record)
            self._stuck = False
            run = await self._writer.next(self._record, decision)
            put = _Put(
                run=run,
                events=len(events),
                entries=new_entries(decision.run, self._record.last_seq),
                renewal=bool(renewal),
                effects=decision.effects,
                more=decision.more,
                sent=Moment.of(self._clock),
            )
            self._unanswered[run.write_id] = put
            head_bytes = await self._runs.put(put.run, self._condition, now=self._clock.now())
        except Conflict as conflict:
            return await self._go_by(conflict.current)
        except Unanswered:
            return await self._look()
        except InfrastructureError as error:
            return await self._refused(error)
        except LimitExceeded as error:
            if not self._writer.all_of_it:
                self._writer.all_of_it = True
                return None
            if not self._held or any(isinstance(event, RecordTooLarge) for event in events):
                raise
            # Nothing was written. What made the record too big is dropped, and the run ends saying so.
            self._inbox[: len(events)] = [RecordTooLarge(detail=str(error))]
            return None
        except Exception as error:
            if not self._repeated or any(isinstance(event, Undecidable) for event in events):
                raise
            logger().exception("what follows for a run can't be decided; it fails", extra={"run_id": self._record.id})
            fault = raised(error).fault
            detail = f"what follows can't be decided: {fault.type}: {fault.message}"[:MAX_MESSAGE]
            self._inbox[: len(events)] = [Undecidable(owner=self._claim.owner, detail=detail)]
            return None
        self._answered(replace(put, run=fast_replace(put.run, head_bytes=head_bytes)))
        return None

    async def _decided(
        self, events: tuple[Event, ...], renewal: tuple[Event, ...]
    ) -> tuple[tuple[Event, ...], Decision]:
        """What follows from the events; where that can't be had for want of a payload, the run stays in hand."""
        try:
            decision = await self._payloads.provide(
                self._record, lambda loaded: self._decide((*events, *renewal), loaded)
            )
        except InfrastructureError:
            if not (self._held and renewal):
                raise
            return (), self._decide(renewal, {}, goes_on=False)
        return events, decision

    def _decide(self, events: Sequence[Event], loaded: Loaded, *, goes_on: bool = True) -> Decision:
        return decide(
            self._record,
            self._workflow,
            events,
            self._clock.now(),
            limits=self._limits,
            loaded=loaded,
            goes_on=goes_on and (self._held or self._first is None),
            clock=self._cpu,
        )

    def _answered(self, put: _Put, row: Run | None = None) -> None:
        """The put is done: it is counted, its events leave the inbox, its effects follow.

        `row` is the record that stands, where an operator has written over it since.
        """
        del self._inbox[: put.events]
        self._unanswered.clear()
        self._refusals = 0
        before, record = self._record, put.run if row is None else row
        self._hold(record, sent=put.sent.monotonic)
        committed(before, put.run, put.entries, self._workflow)
        if put.run.terminal:
            ended(put.run, by_workflow=self._by_workflow)
        if put.renewal:
            count(Metric.LEASE_RENEWALS, of=(put.run.class_name,))
        if put.more:
            self._inbox.append(RecordReloaded())
        for effect in put.effects:
            if isinstance(effect, StartAttempt):
                if not effect.large:
                    self._inputs[Attempt(effect.step, effect.attempt)] = effect.input
            else:
                self._effects.follow(record, effect, committed=put.sent)

    def _hold(self, record: Run, *, sent: float | None) -> None:
        self._held = True
        self._record = record
        self._condition = IfVersion(version=record.version, submission=record.submission)
        self._seen = self._clock.monotonic()
        self._held_lease.extend(record.lease_until, since=sent)

    async def _look(self) -> OwnershipLost | None:
        """After a put without an answer: the record says whether it was done."""
        await self._pause()
        try:
            row = await self._runs.get(self._key, now=self._clock.now())
        except InfrastructureError:
            return await self._refused()
        return await self._go_by(row)

    async def _go_by(self, row: Run | None) -> OwnershipLost | None:
        """Go on from the record that stands, if it is ours or still the one to be replaced."""
        ours = row is not None and row.owner == self._claim.owner and row.submission == self._record.submission
        if row is not None and ours:
            try:
                done = self._unanswered.get(row.write_id) or await self._written_over(row)
            except (InfrastructureError, NotFound):
                return await self._refused()
            if done is not None:
                self._answered(done, row)
                if row.write_id != done.run.write_id:
                    self._inbox.append(RecordReloaded())
            elif row.version != self._record.version:
                # An operator's move, over a renewal or our last record.
                first = min((put.sent.monotonic for put in self._unanswered.values()), default=None)
                self._unanswered.clear()
                self._hold(row, sent=None if self._held else first)
                self._inbox.append(RecordReloaded())
            else:
                return await self._refused()
            return None
        if not self._held and self._replaceable(row):
            return await self._refused()
        return self._lost(row)

    async def _written_over(self, row: Run) -> _Put | None:
        """The unanswered put that somebody has written over: the record goes back to it, entry by entry.

        Whoever wrote over it may have sealed its entries away.
        """
        entries = {entry.seq: entry for entry in row.journal}
        for put in sorted(self._unanswered.values(), key=lambda put: put.run.last_seq, reverse=True):
            seq = put.run.last_seq
            if seq <= self._record.last_seq:
                break
            if seq <= row.sealed.last_seq:
                entries |= {entry.seq: entry for entry in await self._runs.sealed_entries(row, after=seq - 1, limit=1)}
            if entries.get(seq) == put.run.journal[-1]:
                return put
        return None

    def _replaceable(self, row: Run | None) -> bool:
        """Whether a claim's condition still holds for this row: its put was not done, or not yet."""
        if isinstance(self._condition, IfVersion):
            return row is not None and (row.version, row.submission) == (
                self._condition.version,
                self._condition.submission,
            )
        return row is None or (row.version == 1 and row.submission == self._record.submission)

    async def _refused(self, error: InfrastructureError | None = None) -> OwnershipLost | None:
        """Pause before the next try. A claim that is refused too often gives up; a holder's lease does.

        A claim that was throttled each time says so: of nothing else it is certain that it will not be done later.
        """
        self._refusals += 1
        self._in_doubt = self._in_doubt or not isinstance(error, Throttled)
        if not self._held and self._refusals >= TRIES_TO_CLAIM:
            if error is None or self._in_doubt:
                raise Unanswered("the claim could not be made")
            raise error
        await self._pause()
        return None

    async def _pause(self) -> None:
        await self._clock.sleep(PAUSES_SECONDS[min(self._refusals, len(PAUSES_SECONDS) - 1)])
