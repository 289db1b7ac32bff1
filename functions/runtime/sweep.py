"""What the sweeper does each minute: the net below everything that may be lost (R14).

It rings for waiting runs that are due, and, a part of them in each pass, looks after all active
runs: dead leases, queued runs past their deadline, queued runs whose envelope is gone. All of it
may be done twice, or by two at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from functions.engine.decide import QUEUE_GRACE
from functions.engine.errors import InfrastructureError
from functions.engine.lease import abandoned
from functions.engine.message import RESUME, Message, QueueName, Wake, envelope_of
from functions.engine.ports import Marks, Places, RunKey, RunStore, Tokens, WorkQueue
from functions.engine.run import Run, Status
from functions.engine.terms import Terms
from functions.runtime.rotation import MAX_READ, Cursor, Rotation
from functions.runtime.settings import Settings
from functions.runtime.telemetry import Metric, count, logger, measure

AHEAD = timedelta(seconds=150)
"""How far ahead the due index is asked: two passes and a half, so that one missed pass delays nothing (R4)."""

PASS_SECONDS = 60
"""The sweeper's period; overdue rings are spread over it."""

OLD = timedelta(days=1)
"""A run queued for so long has its envelope sent again each time as much has passed, whatever its lane holds."""

SENDERS = 16
"""Messages on their way at once."""

Settle = Callable[[Run], Awaitable[bool]]
"""Decides a queued run anew (`Swept`), commits, and returns its place; whether it ended the run."""


class SweepServices(Protocol):
    """What a sweep needs of the services."""

    @property
    def settings(self) -> Settings: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def queue(self) -> WorkQueue: ...
    @property
    def places(self) -> Places: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def marks(self) -> Marks: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a pass did.

    `rung` counts wakes for due runs, `looked_at` active runs, `rescued` wakes for runs with a dead lease, `settled`
    queued runs that were out of time, `resent` envelopes, `failed` what a service refused, `foreign` runs of a
    class that is not configured here. `turn_seconds`: how long the cursor took for all runs, where a turn ended.
    """

    rung: int
    looked_at: int
    rescued: int
    settled: int
    resent: int
    failed: int
    foreign: int
    turn_seconds: float | None


async def sweep(services: SweepServices, terms: Terms, *, now: datetime, settle: Settle) -> SweepReport:
    """One pass. What fails for one run is counted and left to the next pass.

    Each part is tried though another failed; then an ExceptionGroup of their `InfrastructureError`s is raised.
    """
    one_pass = _Pass(services, terms, now, settle)
    errors: list[Exception] = []
    for part in (one_pass.measure_queues, one_pass.ring_for_due, one_pass.rotate, one_pass.sample_places):
        try:
            await part()
        except InfrastructureError as error:
            errors.append(error)
    report = one_pass.report()
    if repaired := report.rescued + report.settled + report.resent:
        count(Metric.REPAIRED, repaired)
    if report.turn_seconds is not None:
        measure(Metric.SWEEP_TURN_SECONDS, report.turn_seconds)
    if errors:
        raise ExceptionGroup("parts of the sweep failed", errors)
    return report


class _Pass:
    """One pass: its parts, and what they share."""

    def __init__(self, services: SweepServices, terms: Terms, now: datetime, settle: Settle) -> None:
        self._services = services
        self._terms = terms
        self._now = now
        self._settle = settle
        self._classes = services.settings.classes
        # Wakes a class may still get in this pass, and how many it got.
        self._allowed: Counter[str] = Counter()
        self._rung: Counter[str] = Counter()
        # Lanes that read empty now and in the pass before, and when that pass was.
        self._empty: Mapping[QueueName, datetime] = {}
        self._oldest: Mapping[str, datetime] = {}
        self._done: Counter[str] = Counter()
        self._turn_seconds: float | None = None
        self._sending = asyncio.Semaphore(SENDERS)

    def report(self) -> SweepReport:
        """What was done up to now."""
        counts = {name: self._done[name] for name in SweepReport.__slots__ if name != "turn_seconds"}
        return SweepReport(**counts, turn_seconds=self._turn_seconds)

    # --- parts ----------------------------------------------------------------------------------

    async def measure_queues(self) -> None:
        """How many wakes each class can take, and which lanes are empty for the second time."""
        for name in self._classes:
            depth = await self._services.queue.depth(QueueName(class_name=name, role=RESUME))
            waiting = depth.visible + depth.in_flight + depth.delayed
            self._allowed[name] = max(0, self._services.settings.sweep_rings - waiting)
        empty = [lane for lane in self._lanes() if await self._is_empty(lane)]
        before = await self._services.marks.get("sweep.empty") or {}
        self._empty = {lane: datetime.fromisoformat(before[str(lane)]) for lane in empty if str(lane) in before}
        await self._services.marks.put("sweep.empty", {str(lane): self._now.isoformat() for lane in empty})

    async def ring_for_due(self) -> None:
        """Wakes for what is overdue, and for what comes due in the time ahead that no pass has rung for yet."""
        mark = await self._services.marks.get("sweep.rung")
        rung_until = self._now if mark is None else datetime.fromisoformat(mark)
        until = self._now + AHEAD
        limit = self._services.settings.sweep_rings * len(self._classes)
        keys = await self._services.runs.due(until, limit=limit)
        rows = [run for run in await self._read(keys) if run.status is Status.WAITING]  # the index lags
        due = sorted(((run.due_at, run) for run in rows if run.due_at is not None), key=lambda pair: pair[0])
        if len(keys) == limit:  # there may be more: what is done reaches as far as what was read
            until = due[-1][0] if due else self._now
        sends: list[_Send] = []
        for due_at, run in due:
            if due_at > until or self._now < due_at <= rung_until:
                continue
            if self._may_ring(run):
                sends.append((run, _resume(run), _wake(run), self._delay(run.class_name, due_at)))
            elif run.class_name in self._classes:
                until = min(until, due_at - timedelta(milliseconds=1))
        await asyncio.gather(*(self._send("rung", *send) for send in sends))
        await self._services.marks.put("sweep.rung", max(until, rung_until).isoformat())

    async def rotate(self) -> None:
        """Looks after the next active runs."""
        services = self._services
        cursor = Cursor.from_json(await services.marks.get("sweep.cursor"), now=self._now)
        rotation = Rotation(services.runs, await services.tokens.tenants(), cursor, limit=services.settings.sweep_batch)
        runs = [run async for run in rotation.heads(now=self._now)]
        self._done["looked_at"] += len(runs)
        await asyncio.gather(*(self._look_after(run, cursor.last_began_at) for run in runs))
        if rotation.ended:
            self._turn_seconds = (self._now - cursor.began_at).total_seconds()
        known = rotation.cursor.last_oldest
        self._oldest = rotation.cursor.oldest if known is None else known
        await services.marks.put("sweep.cursor", rotation.cursor.to_json())

    async def sample_places(self) -> None:
        """Tells the places counters what was seen; they measure their drain and adopt the configured bound."""
        for name in self._classes:
            await self._services.places.sample(name, now=self._now, oldest_accepted_at=self._oldest.get(name))

    # --- one run --------------------------------------------------------------------------------

    async def _look_after(self, run: Run, last_turn: datetime | None) -> None:
        if run.class_name not in self._classes or run.lane not in self._classes[run.class_name].lanes:
            self._done["foreign"] += 1
        elif abandoned(run, self._now, self._terms):
            if self._may_ring(run):
                await self._send("rescued", run, _resume(run), _wake(run), 0)
        elif run.status is Status.QUEUED and self._out_of_time(run):
            await self._settle_one(run)
        elif run.status is Status.QUEUED and self._envelope_lost(run, last_turn):
            await self._send("resent", run, _lane(run), envelope_of(run), 0)

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

    async def _settle_one(self, run: Run) -> None:
        try:
            async with self._sending:
                self._done["settled"] += await self._settle(run)
        except InfrastructureError as error:
            self._failed(run, error)

    # --- messages -------------------------------------------------------------------------------

    async def _send(self, counter: str, run: Run, queue: QueueName, message: Message, delay_seconds: int) -> None:
        try:
            async with self._sending:
                await self._services.queue.send(queue, message, delay_seconds=delay_seconds)
        except InfrastructureError as error:
            self._failed(run, error)
        else:
            self._done[counter] += 1

    def _failed(self, run: Run, error: InfrastructureError) -> None:
        self._done["failed"] += 1
        logger().warning("the sweep failed for a run", extra={"run_id": run.id, "error": repr(error)})

    def _may_ring(self, run: Run) -> bool:
        if run.class_name not in self._classes:
            self._done["foreign"] += 1
            return False
        if self._rung[run.class_name] >= self._allowed[run.class_name]:
            return False
        self._rung[run.class_name] += 1
        return True

    def _delay(self, class_name: str, due_at: datetime) -> int:
        """Seconds until a wake is due; what is overdue is spread over the pass."""
        per_second = max(1, math.ceil(self._services.settings.sweep_rings / PASS_SECONDS))
        return max(math.ceil((due_at - self._now).total_seconds()), (self._rung[class_name] - 1) // per_second)

    async def _read(self, keys: Sequence[RunKey]) -> list[Run]:
        rows: list[Run] = []
        for start in range(0, len(keys), MAX_READ):
            rows += (await self._services.runs.get_many(keys[start : start + MAX_READ], now=self._now)).values()
        return rows

    def _lanes(self) -> list[QueueName]:
        return [QueueName(class_name=name, role=lane) for name, c in self._classes.items() for lane in c.lanes]

    async def _is_empty(self, lane: QueueName) -> bool:
        depth = await self._services.queue.depth(lane)
        return depth.visible + depth.delayed == 0  # what is in flight may be lost with its worker


_Send = tuple[Run, QueueName, Message, int]


def _resume(run: Run) -> QueueName:
    return QueueName(class_name=run.class_name, role=RESUME)


def _lane(run: Run) -> QueueName:
    return QueueName(class_name=run.class_name, role=run.lane)


def _wake(run: Run) -> Wake:
    return Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name)
