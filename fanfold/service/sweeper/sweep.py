"""What the sweeper does each minute: it repairs whatever was lost (R14).

Each pass checks some of the active runs: leases that have ended, queued runs past their deadline, queued runs whose
envelope was lost. It sends wakes for waiting runs that are due, and repairs queue slots. Two passes may run at the
same time, and a pass may be repeated. The work of a pass does not grow with the number of runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from fanfold.engine.payload import Json
from fanfold.engine.record.messages import QueueName, envelope_of
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.decide import QUEUE_GRACE
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.lease import abandoned
from fanfold.service.sweeper.active_scan import MAX_READ, ActiveScan, Cursor
from fanfold.service.sweeper.containment import kept, remembered
from fanfold.service.sweeper.slot_repair import repair
from fanfold.service.sweeper.wakes import Outbox, Wakes
from fanfold.service.telemetry.reporting import Metric, count, measure
from fanfold.service.wakes import delay_until
from fanfold.service.wiring import Services

OLD = timedelta(days=1)
"""The envelope of a queued run is sent again after each such period, whatever its lane holds."""

Expire = Callable[[Run], Awaitable[bool]]
"""Checks a queued run's deadline (`QueueDeadlineChecked`), commits, and releases its slot; True if the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a pass did.

    wakes_sent: wakes for due runs. wakes_lost: those among them that replace a lost wake. checked: active runs that
    the scan read. rescued: wakes for runs whose lease has ended. expired: queued runs that ended by their deadline.
    resent: envelopes that were sent again. slots_repaired: leaked queue slots. failed: runs for which something failed.
    unknown_class: runs of a class or lane that is not configured here. turn_seconds: how long the scan of all active
    runs took, if one was completed.
    """

    wakes_sent: int
    wakes_lost: int
    checked: int
    rescued: int
    expired: int
    resent: int
    slots_repaired: int
    failed: int
    unknown_class: int
    turn_seconds: float | None


async def sweep(services: Services, limits: EngineLimits, *, now: datetime, expire: Expire) -> SweepReport:
    """Run one pass. An error about one run is counted, and the next pass tries again.

    Every part runs even if another part failed. Raises an ExceptionGroup of the parts' errors at the end.
    """
    one_pass = _Pass(services, limits, now, expire)
    errors: list[Exception] = []
    parts = (
        one_pass.measure_resume_queues,
        one_pass.wake_due_runs,
        one_pass.measure_lanes,
        one_pass.check_active_runs,
        one_pass.wake_abandoned_runs,
        one_pass.wake_more_due_runs,
        one_pass.sample_slots,
        one_pass.repair_slots,
    )
    for part in parts:
        try:
            await part()
        except Exception as error:
            errors.append(error)
    errors += one_pass.errors
    report = one_pass.report()
    if repaired := report.wakes_lost + report.rescued + report.expired + report.resent:
        count(Metric.REPAIRED, repaired)
    for class_name, seconds in one_pass.overdue_seconds().items():
        measure(Metric.OVERDUE, seconds, of=(class_name,))
    if one_pass.turn_so_far_seconds is not None:
        measure(Metric.SWEEP_TURN_SECONDS, one_pass.turn_so_far_seconds)
    if errors:
        raise ExceptionGroup("parts of the sweep failed", errors)
    return report


class _Pass:
    """One pass: its parts, and the state that they share."""

    def __init__(self, services: Services, limits: EngineLimits, now: datetime, expire: Expire) -> None:
        self._services = services
        self._limits = limits
        self._now = now
        self._expire = expire
        self._classes = services.settings.classes
        self._abandoned: list[Run] = []
        # Lanes that read empty now and in the pass before, and when that pass was.
        self._empty: Mapping[QueueName, datetime] = {}
        self._oldest: Mapping[str, datetime] = {}
        self._done: Counter[str] = Counter()
        self._turn_seconds: float | None = None
        self.turn_so_far_seconds: float | None = None
        self.errors: list[Exception] = []
        self._outbox = Outbox(services.queue, self._done)
        self._wakes = Wakes(services, self._outbox, now, self._done, self.errors)

    def contained(self) -> AbstractContextManager[None]:
        """Keep an error within one class or lane for the end of the pass."""
        return kept(self.errors)

    def report(self) -> SweepReport:
        """The counts so far."""
        counts = {name: self._done[name] for name in SweepReport.__slots__ if name != "turn_seconds"}
        return SweepReport(**counts, turn_seconds=self._turn_seconds)

    def overdue_seconds(self) -> Mapping[str, float]:
        """How long the longest overdue run of each class is overdue (0: none is).

        A class whose due runs could not be read is missing, unless an abandoned run of it is known.
        """
        since = dict(self._wakes.overdue_since)
        for run in self._abandoned:
            if run.lease_until is not None:
                since[run.class_name] = min(run.lease_until, since.get(run.class_name, self._now))
        known = [name for name in self._classes if name in self._wakes.asked or name in since]
        return {name: max(0.0, (self._now - since.get(name, self._now)).total_seconds()) for name in known}

    # --- parts ----------------------------------------------------------------------------------

    async def measure_resume_queues(self) -> None:
        """Find out how many wakes each class can take."""
        await self._wakes.measure()

    async def measure_lanes(self) -> None:
        """Find the lanes that are empty for the second time."""
        empty: list[QueueName] = []
        for lane in self._lanes():
            with self.contained():
                if await self._is_empty(lane):
                    empty.append(lane)
        before = await remembered(self._services.sweeper_state, "sweep.empty", _times, _times(None))
        self._empty = {lane: before[str(lane)] for lane in empty if str(lane) in before}
        await self._services.sweeper_state.put("sweep.empty", {str(lane): self._now.isoformat() for lane in empty})

    async def check_active_runs(self) -> None:
        """Check the next active runs."""
        services = self._services
        fresh = Cursor(began_at=self._now)
        cursor = await remembered(
            services.sweeper_state, "sweep.cursor", partial(Cursor.from_json, now=self._now), fresh
        )
        scan = ActiveScan(services.runs, await services.tokens.tenants(), cursor, limit=services.settings.sweep_batch)
        # In parts: all records of a pass may not fit into the memory of a small process.
        part: list[Run] = []
        async for run in scan.heads(now=self._now):
            part.append(run)
            if len(part) == MAX_READ:
                await self._check_all(part, cursor.last_began_at)
                part = []
        await self._check_all(part, cursor.last_began_at)
        self.turn_so_far_seconds = (self._now - cursor.began_at).total_seconds()
        if scan.ended:
            self._turn_seconds = self.turn_so_far_seconds
        known = scan.cursor.last_oldest
        self._oldest = scan.cursor.oldest if known is None else known
        await services.sweeper_state.put("sweep.cursor", scan.cursor.to_json())

    async def wake_abandoned_runs(self) -> None:
        """Send wakes for the runs checked in this pass whose worker died."""
        await self._wakes.wake_abandoned(self._abandoned)

    async def wake_due_runs(self) -> None:
        """Send wakes for runs that are due now or soon and have no wake yet."""
        await self._wakes.wake_due()

    async def wake_more_due_runs(self) -> None:
        """Send wakes for further due runs, as many as the queues may take."""
        await self._wakes.wake_more_due()

    async def sample_slots(self) -> None:
        """Tell each class's slot counter what was seen: the counter measures its drain and adopts the class's bound."""
        for name in self._classes:
            with self.contained():
                await self._services.slots.sample(name, now=self._now, oldest_accepted_at=self._oldest.get(name))

    async def repair_slots(self) -> None:
        """Repair leaked slots."""
        self._done["slots_repaired"] += await repair(self._services, now=self._now)

    # --- one run --------------------------------------------------------------------------------

    async def _check_all(self, runs: Sequence[Run], last_turn: datetime | None) -> None:
        self._done["checked"] += len(runs)
        await asyncio.gather(*(self._check(run, last_turn) for run in runs))

    async def _check(self, run: Run, last_turn: datetime | None) -> None:
        try:
            await self._repair(run, last_turn)
        except Exception as error:  # an error about one run must not stop the others
            self._outbox.failed(run, error)

    async def _repair(self, run: Run, last_turn: datetime | None) -> None:
        if run.class_name not in self._classes or run.lane not in self._classes[run.class_name].lanes:
            self._done["unknown_class"] += 1
        elif abandoned(run, self._now, self._limits):
            self._abandoned.append(run)
        elif run.status is Status.QUEUED and self._out_of_time(run):
            async with self._outbox.few:
                self._done["expired"] += await self._expire(run)
        elif run.status is Status.QUEUED and self._envelope_lost(run, last_turn):
            delay = delay_until(run.not_before, self._now)
            envelope = replace(envelope_of(run), again=True)
            await self._outbox.send("resent", run, _lane(run), envelope, delay_seconds=delay)

    def _out_of_time(self, run: Run) -> bool:
        first = run.deadline if run.queue_deadline is None else min(run.deadline, run.queue_deadline)
        return first + QUEUE_GRACE <= self._now

    def _envelope_lost(self, run: Run, last_turn: datetime | None) -> bool:
        """Whether the run was queued before its lane was empty, or another whole day has passed since the last scan."""
        empty_since = self._empty.get(_lane(run))
        if empty_since is not None and run.created_at <= empty_since:
            return True
        days = (self._now - run.created_at) // OLD
        days_then = 0 if last_turn is None else max(0, (last_turn - run.created_at) // OLD)
        return days > days_then

    def _lanes(self) -> list[QueueName]:
        return [QueueName(class_name=name, role=lane) for name, c in self._classes.items() for lane in c.lanes]

    async def _is_empty(self, lane: QueueName) -> bool:
        depth = await self._services.queue.depth(lane)
        return depth.visible + depth.delayed == 0  # a message in flight may be lost with its worker


def _times(value: Json) -> Mapping[str, datetime]:
    return {name: datetime.fromisoformat(text) for name, text in (value or {}).items()}


def _lane(run: Run) -> QueueName:
    return QueueName(class_name=run.class_name, role=run.lane)
