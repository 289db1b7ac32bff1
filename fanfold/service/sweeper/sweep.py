"""What the sweeper does each minute: the net below everything that may be lost (R14).

It looks after all active runs, a part of them in each pass: dead leases, queued runs past their
deadline, queued runs whose envelope is gone. It rings for waiting runs that are due, and repairs
queue slots. All of it may be done twice, or by two at once; none of it grows with the number of
runs.
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
"""A run queued for so long has its envelope sent again each time as much has passed, whatever its lane holds."""

Settle = Callable[[Run], Awaitable[bool]]
"""Decides a queued run anew (`QueueDeadlineChecked`), commits, and releases its slot; whether it ended the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a pass did.

    `rung` counts wakes for due runs, `lost` those of them that were sent before and came to nothing, `looked_at` active
    runs, `rescued` wakes for runs with a dead lease, `settled` queued runs that were out of time, `resent` envelopes,
    `healed` leaked queue slots, `failed` what a service refused, `foreign` runs of a class that is not configured
    here. `turn_seconds`: how long the cursor took for all runs, where a turn ended.
    """

    rung: int
    lost: int
    looked_at: int
    rescued: int
    settled: int
    resent: int
    healed: int
    failed: int
    foreign: int
    turn_seconds: float | None


async def sweep(services: Services, limits: EngineLimits, *, now: datetime, settle: Settle) -> SweepReport:
    """One pass. What fails for one run, whatever it is, is counted and left to the next pass.

    Each part is tried though another failed, those that bring runs back first; then an ExceptionGroup of their errors
    is raised.
    """
    one_pass = _Pass(services, limits, now, settle)
    errors: list[Exception] = []
    parts = (
        one_pass.measure_resume_queues,
        one_pass.ring_for_due,
        one_pass.measure_lanes,
        one_pass.rotate,
        one_pass.rescue,
        one_pass.ring_for_more,
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
    if repaired := report.lost + report.rescued + report.settled + report.resent:
        count(Metric.REPAIRED, repaired)
    for class_name, seconds in one_pass.overdue_seconds().items():
        measure(Metric.OVERDUE, seconds, of=(class_name,))
    if one_pass.turn_so_far_seconds is not None:
        measure(Metric.SWEEP_TURN_SECONDS, one_pass.turn_so_far_seconds)
    if errors:
        raise ExceptionGroup("parts of the sweep failed", errors)
    return report


class _Pass:
    """One pass: its parts, and what they share."""

    def __init__(self, services: Services, limits: EngineLimits, now: datetime, settle: Settle) -> None:
        self._services = services
        self._limits = limits
        self._now = now
        self._settle = settle
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
        """What fails within costs one class or lane; it is raised at the end of the pass."""
        return kept(self.errors)

    def report(self) -> SweepReport:
        """What was done up to now."""
        counts = {name: self._done[name] for name in SweepReport.__slots__ if name != "turn_seconds"}
        return SweepReport(**counts, turn_seconds=self._turn_seconds)

    def overdue_seconds(self) -> Mapping[str, float]:
        """For each class that was asked how long that run is overdue for which nobody has come for longest (0: none).

        A class whose due runs are not known has a figure only where another run is known to be overdue.
        """
        since = dict(self._wakes.overdue_since)
        for run in self._abandoned:
            if run.lease_until is not None:
                since[run.class_name] = min(run.lease_until, since.get(run.class_name, self._now))
        known = [name for name in self._classes if name in self._wakes.asked or name in since]
        return {name: max(0.0, (self._now - since.get(name, self._now)).total_seconds()) for name in known}

    # --- parts ----------------------------------------------------------------------------------

    async def measure_resume_queues(self) -> None:
        """How many wakes each class can take."""
        await self._wakes.measure()

    async def measure_lanes(self) -> None:
        """Which lanes are empty for the second time."""
        empty: list[QueueName] = []
        for lane in self._lanes():
            with self.contained():
                if await self._is_empty(lane):
                    empty.append(lane)
        before = await remembered(self._services.marks, "sweep.empty", _times, _times(None))
        self._empty = {lane: before[str(lane)] for lane in empty if str(lane) in before}
        await self._services.marks.put("sweep.empty", {str(lane): self._now.isoformat() for lane in empty})

    async def rotate(self) -> None:
        """Looks after the next active runs."""
        services = self._services
        fresh = Cursor(began_at=self._now)
        cursor = await remembered(services.marks, "sweep.cursor", partial(Cursor.from_json, now=self._now), fresh)
        rotation = ActiveScan(
            services.runs, await services.tokens.tenants(), cursor, limit=services.settings.sweep_batch
        )
        # In parts: a pass's records together may be more than a small process holds.
        part: list[Run] = []
        async for run in rotation.heads(now=self._now):
            part.append(run)
            if len(part) == MAX_READ:
                await self._look_after_all(part, cursor.last_began_at)
                part = []
        await self._look_after_all(part, cursor.last_began_at)
        self.turn_so_far_seconds = (self._now - cursor.began_at).total_seconds()
        if rotation.ended:
            self._turn_seconds = self.turn_so_far_seconds
        known = rotation.cursor.last_oldest
        self._oldest = rotation.cursor.oldest if known is None else known
        await services.marks.put("sweep.cursor", rotation.cursor.to_json())

    async def rescue(self) -> None:
        """Wakes for the runs whose worker died, of those that were looked after in this pass."""
        await self._wakes.rescue(self._abandoned)

    async def ring_for_due(self) -> None:
        """Wakes for what is overdue, and for what comes due in the time ahead, that has none on its way."""
        await self._wakes.ring_for_due()

    async def ring_for_more(self) -> None:
        """Wakes for the rest of what is due, as far as there is room."""
        await self._wakes.ring_for_more()

    async def sample_slots(self) -> None:
        """Tells the slots counters what was seen; they measure their drain and adopt the configured bound."""
        for name in self._classes:
            with self.contained():
                await self._services.slots.sample(name, now=self._now, oldest_accepted_at=self._oldest.get(name))

    async def repair_slots(self) -> None:
        """Gives leaked slots back to their class's bound."""
        self._done["healed"] += await repair(self._services, now=self._now)

    # --- one run --------------------------------------------------------------------------------

    async def _look_after_all(self, runs: Sequence[Run], last_turn: datetime | None) -> None:
        self._done["looked_at"] += len(runs)
        await asyncio.gather(*(self._look_after(run, last_turn) for run in runs))

    async def _look_after(self, run: Run, last_turn: datetime | None) -> None:
        try:
            await self._help(run, last_turn)
        except Exception as error:  # whatever one run does to this code, it does to itself
            self._outbox.failed(run, error)

    async def _help(self, run: Run, last_turn: datetime | None) -> None:
        if run.class_name not in self._classes or run.lane not in self._classes[run.class_name].lanes:
            self._done["foreign"] += 1
        elif abandoned(run, self._now, self._limits):
            self._abandoned.append(run)
        elif run.status is Status.QUEUED and self._out_of_time(run):
            async with self._outbox.few:
                self._done["settled"] += await self._settle(run)
        elif run.status is Status.QUEUED and self._envelope_lost(run, last_turn):
            delay = delay_until(run.not_before, self._now)
            envelope = replace(envelope_of(run), again=True)
            await self._outbox.send("resent", run, _lane(run), envelope, delay_seconds=delay)

    def _out_of_time(self, run: Run) -> bool:
        first = run.deadline if run.queue_deadline is None else min(run.deadline, run.queue_deadline)
        return first + QUEUE_GRACE <= self._now

    def _envelope_lost(self, run: Run, last_turn: datetime | None) -> bool:
        """Queued since before its lane first read empty, or another whole day since the turn before."""
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
        return depth.visible + depth.delayed == 0  # what is in flight may be lost with its worker


def _times(value: Json) -> Mapping[str, datetime]:
    return {name: datetime.fromisoformat(text) for name, text in (value or {}).items()}


def _lane(run: Run) -> QueueName:
    return QueueName(class_name=run.class_name, role=run.lane)
