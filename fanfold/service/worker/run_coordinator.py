"""One writer loop per run: act on its record, wait until something happens, write, until the run ends or is lost (R3).

Results, timers, renewals and lost races are all events of this one loop, so at most one put is in
flight. The loop is level-triggered: after a put that failed or was not answered it goes by the
record that stands; while that record's owner is this loop's claim id it is its own, whichever put
made it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.ports import Condition
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import Claimed, Emitted, Event, RecordReloaded, StopRequested
from fanfold.engine.rules.scheduling import watched
from fanfold.service.effects import EffectRunner
from fanfold.service.payloads import Payloads
from fanfold.service.telemetry.reporting import Metric, logger, observe
from fanfold.service.wiring import Services
from fanfold.service.worker.ownership import Ended, Ownership, OwnershipLost
from fanfold.service.worker.run_commits import RunCommits
from fanfold.service.worker.running_attempts import RunningAttempts
from fanfold.service.worker.task_runner import TaskRunner

EMIT_SECONDS = 1.0
"""Progress is written at most this often, unless something else is written anyway."""

GLANCE_SECONDS = 1.0
"""While an operator's move may mean work at once, the record is read this often (R10)."""

STUCK_SECONDS = 1.0
"""When a due timer changed nothing (no time left to start what it is for), it is looked at again after this."""

RETURN_SECONDS = 2.0
"""How long a holder that may be about to die waits for its first commit's effects."""

News = Callable[[Run], Awaitable[Sequence[Event]]]
"""What is to be found out about a run beside its record: the ends of its maps."""


class RunCoordinator:
    """Claims the run whose record is `base` (version 1 from an envelope, or as read) under `condition`, and holds it.

    `news` is what is known already beside its record: the ends of its maps.

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
        base: Run,
        condition: Condition,
        *,
        claim: Claimed,
        news: Sequence[Event] = (),
        repeated: bool = False,
        first: News | None = None,
    ) -> None:
        self._runs = services.runs
        self._clock = services.clock
        self._workflow = workflow
        payloads = Payloads(services.runs, services.blobs, services.clock)
        self._running = RunningAttempts(
            services, attempts, workflow, payloads, self._post, stop_before=lambda: self._commits.limits.stop_before
        )
        self._own = Ownership(services, base, condition, owner=claim.owner, limits=limits, at_end=self._running.halt)
        self._effects = EffectRunner(services)
        self._commits = RunCommits(
            services,
            workflow,
            self._own,
            payloads,
            self._effects,
            limits=limits,
            claim=claim,
            news=news,
            repeated=repeated,
            bare=first is not None,
        )
        self._first = first
        self._news = asyncio.Event()
        self._broken_off = False
        self._waited = 0.0

    async def run(self) -> Ended | OwnershipLost:
        """Claim the run and hold it to its end. Raises an `InfrastructureError` when the claim can't be made."""
        try:
            began = self._clock.monotonic()
            lost = await self._commits.write()
            while lost is None:
                if self._own.held and not self._at_it():
                    took = self._clock.monotonic() - began - self._running.at_work.seconds - self._waited
                    record = self._own.record
                    observe(Metric.ENGINE_OVERHEAD, round(1_000 * max(0.0, took)), of=(record.class_name,))
                    return Ended(run=record)
                lost = await self._turn() if self._own.held else await self._commits.write()
            return lost
        except asyncio.CancelledError:
            # Whoever breaks a run off has no time for what can be lost.
            self._effects.abandon()
            raise
        finally:
            self._own.lease.stop()
            try:
                await self._running.stop()
            except asyncio.CancelledError:
                self._effects.abandon()
                raise
            finally:
                await self._effects.done()

    def _at_it(self) -> bool:
        """Whether there is anything left for this holder: of a paused run, until its attempts have ended."""
        record = self._own.record
        paused = record.status is Status.PAUSED and record.lease_until is not None
        return record.status is Status.RUNNING or paused

    def hurry(self, stop_before: datetime) -> None:
        """Told to stop: start nothing that would still run at `stop_before`; let the run go when nothing runs."""
        self._commits.limits = replace(self._commits.limits, stop_before=stop_before, stopping=True)
        self._commits.stuck = False
        self._news.set()

    def break_off(self) -> None:
        """There is no more time: stop what runs, and let the run go, due now; none of it counts as a crash."""
        self._broken_off = True
        self._news.set()

    async def _turn(self) -> OwnershipLost | None:
        """Act on the record, wait until something happens, and write what follows from it."""
        if self._own.lease.over():
            return self._own.lost(None)
        if self._broken_off:
            return await self._let_go()
        if self._first is not None:
            first, self._first = self._first, None
            return await self._go_on(first)
        inputs, self._commits.inputs = self._commits.inputs, {}
        self._running.match(self._own.record, inputs)
        since, at_work = self._clock.monotonic(), self._running.at_work.seconds
        await self._something()
        # What was waited for beside the attempts: a backoff, an operator.
        self._waited += self._clock.monotonic() - since - (self._running.at_work.seconds - at_work)
        if self._own.lease.over():
            return self._own.lost(None)
        if self._broken_off:
            return await self._let_go()
        return await self._poll_record() if self._only_polls() else await self._commits.write()

    async def _go_on(self, first: News) -> OwnershipLost | None:
        """The claim is committed: now everything that it leads to."""
        # Should what follows kill this process, the slot of the run is released by then.
        await self._effects.settled(RETURN_SECONDS)
        try:
            news = await first(self._own.record)
        except InfrastructureError as error:
            logger().warning("a run can't be looked at", extra={"run_id": self._own.record.id, "error": repr(error)})
            self._broken_off = True
            return None
        self._commits.inbox += [*news, RecordReloaded()]
        return await self._commits.write()

    async def _let_go(self) -> OwnershipLost | None:
        """Stop what runs, and commit that none of it is a crash, with what has ended until then."""
        never_begun = self._running.never_begun(self._own.record)
        await self._running.stop()
        if self._own.lease.over():
            return self._own.lost(None)
        if not any(isinstance(event, StopRequested) for event in self._commits.inbox):
            self._commits.inbox += [*never_begun, StopRequested()]
        return await self._commits.write()

    # --- waiting --------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        self._commits.inbox.append(event)
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
        if self._broken_off or any(not isinstance(event, Emitted) for event in self._commits.inbox):
            return 0.0
        wait = self._own.lease.renewal_left()
        if self._commits.inbox:
            wait = min(wait, self._own.lease.since + EMIT_SECONDS - self._clock.monotonic())
        wait = min(wait, self._poll_left())
        timer = (self._commits.next_timer() - self._clock.now()).total_seconds()
        return min(wait, max(timer, STUCK_SECONDS) if self._commits.stuck else timer)

    def _poll_left(self) -> float:
        """How long until the record is to be looked at for an operator's move that concerns its holder at once."""
        if not watched(self._own.record, self._workflow):
            return math.inf
        return self._own.seen + GLANCE_SECONDS - self._clock.monotonic()

    def _only_polls(self) -> bool:
        """Whether there is nothing to write, and it is time to look."""
        # A timer that brought no change (a look at a map is under way) must not keep it from looking for ever.
        due = not self._commits.stuck and self._commits.next_timer() <= self._clock.now()
        nothing = not self._commits.inbox and self._own.lease.renewal_left() > 0 and not due
        return nothing and self._poll_left() <= 0

    async def _poll_record(self) -> OwnershipLost | None:
        """Read the record, and continue from it if somebody else has written it."""
        self._own.seen = self._clock.monotonic()
        try:
            record = await self._runs.get(self._own.key, now=self._clock.now())
        except InfrastructureError:
            return None  # the next renewal or poll sees it
        if record is not None and record.version == self._own.record.version:
            return None
        return await self._commits.go_by(record)
