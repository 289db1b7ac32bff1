"""The active runs, read once for all checks about runs, and at most so many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fanfold.engine.errors import NewerSchema, NotFound, Unreadable
from fanfold.engine.ports import Bucket, IndexKey, RunKey
from fanfold.engine.record.run import Run, Slot
from fanfold.service.maps import map_key
from fanfold.service.run_reads import legible
from fanfold.service.sweeper.active_scan import MAX_READ
from fanfold.service.wiring import Services

MOST = 10_000
"""The most runs that are read: a hundred strong reads of a hundred records, some seconds and two cents."""

MOST_SEALED = 500
"""The most runs whose sealed segments are read: a query for each, or some for very long runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Active runs as read, oldest first within a tenant; `unreadable` says why this code can't read others.

    `lost_batches` says which runs have an open map with an unreadable record of a batch, and why. `held_before` and
    `held_after` are the slot counters (class, shard and hour) before and after the runs were read. `complete` says
    whether these are all active runs.
    """

    runs: tuple[Run, ...]
    unreadable: Mapping[RunKey, Unreadable]
    lost_batches: Mapping[RunKey, str]
    complete: bool
    held_before: Mapping[tuple[str, Slot], int]
    held_after: Mapping[tuple[str, Slot], int]

    def queued(self) -> Mapping[tuple[str, Slot], int]:
        """The number of queued records for each slot."""
        counts: dict[tuple[str, Slot], int] = {}
        for run in self.runs:
            if run.slot is not None and run.in_queue:
                counts[run.class_name, run.slot] = counts.get((run.class_name, run.slot), 0) + 1
        return counts


async def take(services: Services, *, now: datetime, most: int = MOST) -> Census:
    """Read the runs. Raises an `InfrastructureError` if a service gives no answer."""
    before = await _held(services)
    runs: list[Run] = []
    unreadable: dict[RunKey, Unreadable] = {}
    seen = 0
    complete = True
    lost: dict[RunKey, str] = {}
    sealed = 0
    for tenant in sorted(await services.tokens.tenants()):
        last: IndexKey | None = None
        while complete:
            page = await services.runs.page(tenant, Bucket.ACTIVE, limit=MAX_READ, before=last, ascending=True)
            keys = [RunKey(tenant=key.tenant, run_id=key.run_id) for key in page]
            found = await legible(services.runs, keys, now=now)
            runs += [run for run in found.runs.values() if not run.terminal]
            unreadable |= found.unreadable
            for key, run in found.runs.items():
                if run.sealed.newest is not None and sealed < MOST_SEALED:
                    sealed += 1
                    if (why := await _damage(services, key, run, now=now)) is not None:
                        unreadable[key] = why
                if (damage := await _lost_batch(services, run)) is not None:
                    lost[key] = damage
            seen += len(page)
            if len(page) < MAX_READ:
                break
            last = page[-1]
            complete = seen < most
    return Census(
        runs=tuple(runs),
        unreadable=unreadable,
        lost_batches=lost,
        complete=complete,
        held_before=before,
        held_after=await _held(services),
    )


async def _damage(services: Services, key: RunKey, run: Run, *, now: datetime) -> Unreadable | None:
    """Why a segment of a run can't be read, if so. A record that was written meanwhile has its segments."""
    try:
        await services.runs.segments(run)
    except Unreadable as error:
        return error
    except NotFound as error:
        current = await services.runs.get(key, now=now)
        if current is not None and current.version == run.version:
            return Unreadable(str(error))
    return None


async def _lost_batch(services: Services, run: Run) -> str | None:
    """Why a batch's record of one of the run's open maps can't be read, if so; one query for each map."""
    for name, step in run.steps.items():
        if step.map is None or step.settled:
            continue
        try:
            records = await services.map_records.read(map_key(run, name))
        except NewerSchema as error:
            return str(error)
        if damage := next((record.damage for record in records if record.damage), None):
            return damage
    return None


async def _held(services: Services) -> Mapping[tuple[str, Slot], int]:
    return {
        (class_name, slot): taken
        for class_name in services.settings.classes
        for slot, taken in (await services.slots.held(class_name)).items()
    }
