"""Slot repair: counts the queued records of past hours, some in each pass, and repairs the counters (R6).

Where nothing has been queued for hours and nothing leaked, a pass costs one read per counter. Two
sweepers at once may count twice; they can't subtract twice (`fanfold.engine.admission.leaked_slots`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fanfold.engine.admission.leaked_slots import Finding, closed, confirmed, leaked
from fanfold.engine.payload import Json
from fanfold.engine.ports import Bucket, IndexKey, RunKey
from fanfold.engine.record.run import Run, Slot
from fanfold.service.run_reads import legible
from fanfold.service.sweeper.active_scan import MAX_PAGES, MAX_READ
from fanfold.service.sweeper.containment import remembered
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services

STATE = "sweep.slots"
FORMAT = 1
MAX_FINDINGS = 50
"""Findings that are kept between passes: the state is a few KB. What finds no room is found again later."""

Held = Mapping[tuple[str, Slot], int]
"""Places taken, by class, shard and hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A count of one hour's queued records under way: after `key`, or before the first run of `tenant` (None: of all).

    `unclear`: some records could not be read, so that the count is too low to go by.
    """

    hour: int
    tenant: str | None = None
    key: IndexKey | None = None
    queued: Mapping[str, int] = field(default_factory=dict)
    unclear: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is remembered between passes: the walk under way, the last hour walked in turn, and what was found."""

    walk: Walk | None = None
    last_hour: int = -1
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> Json:
        """The state as JSON."""
        walk = self.walk
        return {
            "format": FORMAT,
            "last_hour": self.last_hour,
            "walk": None
            if walk is None
            else {
                "hour": walk.hour,
                "tenant": walk.tenant,
                "key": None if walk.key is None else walk.key.to_json(),
                "queued": dict(walk.queued),
                "unclear": walk.unclear,
            },
            "findings": [
                [f.class_name, f.slot.shard, f.slot.hour, f.standing, f.surplus, f.at.isoformat()]
                for f in self.findings
            ],
        }

    @classmethod
    def from_json(cls, value: Json) -> State:
        """Parse a stored state; without one of this format, a new one: only work is lost by that."""
        if value is None or value.get("format") != FORMAT:
            return cls()
        walk, key = value["walk"], None if value["walk"] is None else value["walk"]["key"]
        return cls(
            last_hour=value["last_hour"],
            walk=None
            if walk is None
            else Walk(
                hour=walk["hour"],
                tenant=walk["tenant"],
                key=None if key is None else IndexKey.from_json(walk["tenant"], key),
                queued=walk["queued"],
                unclear=walk.get("unclear", False),
            ),
            findings=tuple(
                Finding(
                    class_name=class_name,
                    slot=Slot(shard=shard, hour=hour),
                    standing=standing,
                    surplus=surplus,
                    at=datetime.fromisoformat(at),
                )
                for class_name, shard, hour, standing, surplus, at in value["findings"]
            ),
        )


async def repair(services: Services, *, now: datetime) -> int:
    """One pass, of at most `repair_batch` records and `MAX_PAGES` index pages; returns the number of repaired slots.

    Raises an `InfrastructureError` where a service fails; the next pass goes on from the last one's state.
    """
    one_pass = _Repair(services, now)
    await one_pass.run()
    if one_pass.repaired:
        count(Metric.SLOTS_REPAIRED, one_pass.repaired)
    return one_pass.repaired


class _Repair:
    """One pass: what it may still do, and what it learns."""

    def __init__(self, services: Services, now: datetime) -> None:
        self._services = services
        self._settings = services.settings
        self._now = now
        self._rows = services.settings.repair_batch
        self._pages = MAX_PAGES
        self._walked: set[int] = set()
        self._state = State()
        self.repaired = 0

    async def run(self) -> None:
        """Walk until the pass is used up or every closed hour was looked at once."""
        hours = self._closed(await self._held())
        before = await remembered(self._services.sweeper_state, STATE, State.from_json, State())
        self._state = replace(before, findings=tuple(f for f in before.findings if f.slot.hour in hours))
        if self._state.walk is not None and self._state.walk.hour not in hours:
            self._state = replace(self._state, walk=None)
        tenants: Sequence[str] = sorted(await self._services.tokens.tenants()) if hours else ()
        while (walk := self._state.walk or self._next(hours)) is not None:
            walk = await self._count(walk, tenants)
            if walk is not None:
                self._state = replace(self._state, walk=walk)
                break
        if self._state != before:
            await self._services.sweeper_state.put(STATE, self._state.to_json())

    def _closed(self, held: Held) -> frozenset[int]:
        length, after = self._settings.slot_hour_seconds, self._settings.repair_after_seconds
        hours = {slot.hour for _, slot in held}
        return frozenset(h for h in hours if closed(h, self._now, hour_seconds=length, after_seconds=after))

    async def _held(self) -> Held:
        names = self._settings.classes
        return {
            (name, slot): taken for name in names for slot, taken in (await self._services.slots.held(name)).items()
        }

    def _next(self, hours: Collection[int]) -> Walk | None:
        """The next hour to count: one with a finding that is old enough, else the next in turn."""
        found = {f.slot.hour for f in self._state.findings}
        ripe = {f.slot.hour for f in self._state.findings if self._now - f.at >= self._again} - self._walked
        if ripe:
            return Walk(hour=min(ripe))
        fresh = set(hours) - found - self._walked
        if not fresh:
            return None
        hour = min((hour for hour in fresh if hour > self._state.last_hour), default=min(fresh))
        self._state = replace(self._state, last_hour=hour)
        return Walk(hour=hour)

    @property
    def _again(self) -> timedelta:
        return timedelta(seconds=self._settings.repair_again_seconds)

    async def _count(self, walk: Walk, tenants: Sequence[str]) -> Walk | None:
        """Count on; the walk as far as it came when the pass is used up, None when it came to its end."""
        start = datetime.fromtimestamp(walk.hour * self._settings.slot_hour_seconds, UTC)
        end = start + timedelta(seconds=self._settings.slot_hour_seconds)
        for tenant in tenants:
            if walk.tenant is not None and tenant < walk.tenant:
                continue
            if tenant != walk.tenant:
                walk = replace(walk, tenant=tenant, key=None)
            while True:
                if self._rows <= 0 or self._pages <= 0:
                    return walk
                after = walk.key or IndexKey(tenant=tenant, run_id="", created_at=start)
                limit = min(self._rows, MAX_READ)
                page = await self._services.runs.page(tenant, Bucket.ACTIVE, limit=limit, before=after, ascending=True)
                keys = [key for key in page if key.created_at < end]
                self._pages -= 1
                self._rows -= len(keys)
                walk = await self._with(walk, keys)
                if len(keys) < limit:
                    break
                walk = replace(walk, key=keys[-1])
        await self._judge(walk)
        return None

    async def _with(self, walk: Walk, keys: Sequence[IndexKey]) -> Walk:
        """The walk with these runs' records counted, read strongly: those still queued with a slot of its hour."""
        asked = [RunKey(tenant=key.tenant, run_id=key.run_id) for key in keys]
        heads = await legible(self._services.runs, asked, now=self._now)
        queued = dict(walk.queued)
        for run in heads.runs.values():
            if run.slot is not None and run.in_queue and run.slot.hour == walk.hour:
                counter = _counter(run, run.slot)
                queued[counter] = queued.get(counter, 0) + 1
        return replace(walk, queued=queued, unclear=walk.unclear or bool(heads.unreadable))

    async def _judge(self, walk: Walk) -> None:
        """Read the counters after the count, and subtract what has leaked for certain."""
        held = await self._held()
        at = self._services.clock.now()
        before = {(f.class_name, f.slot): f for f in self._state.findings if f.slot.hour == walk.hour}
        findings = [f for f in self._state.findings if f.slot.hour != walk.hour]
        for (class_name, slot), standing in held.items():
            surplus = standing - walk.queued.get(f"{class_name}/{slot.shard}", 0)
            if slot.hour != walk.hour or surplus <= 0 or walk.unclear:
                continue
            found = Finding(class_name=class_name, slot=slot, standing=standing, surplus=surplus, at=at)
            first = before.get((class_name, slot))
            if certain := leaked(first, found, again=self._again):
                await self._write_off(found, certain)
            elif len(findings) < MAX_FINDINGS:
                findings.append(found if first is None else confirmed(first, found))
        self._walked.add(walk.hour)
        self._state = replace(self._state, walk=None, findings=tuple(findings))

    async def _write_off(self, found: Finding, certain: int) -> None:
        if await self._services.slots.write_off(found.class_name, found.slot, surplus=certain, standing=found.standing):
            self.repaired += certain
            facts = {"class_name": found.class_name, "shard": found.slot.shard, "hour": found.slot.hour}
            logger().warning("leaked queue slots were repaired", extra={**facts, "slots": certain})


def _counter(run: Run, slot: Slot) -> str:
    return f"{run.class_name}/{slot.shard}"
