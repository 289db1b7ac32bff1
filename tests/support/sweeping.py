"""A deployment in memory, as far as the sweeper sees it: no API, no worker, a clock the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from fanfold.adapters.memory import MemoryQueue, MemoryRunStore, MemorySlots, MemorySweeperState, MemoryTokens
from fanfold.engine.ports import Bucket, IfAbsent, IfVersion, RunKey
from fanfold.engine.record.messages import first_version
from fanfold.engine.record.run import Run, Slot, Status
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.service.settings import Settings
from fanfold.service.sweeper.sweep import SweepReport, sweep
from tests.support.builders import a_token, an_envelope
from tests.support.clock import FakeClock

LIMITS = EngineLimits(
    lease=timedelta(seconds=60),
    skew=timedelta(seconds=5),
    suspend_after=timedelta(seconds=5),
    max_crashes=5,
    retention=timedelta(days=30),
)


class Calls:
    """A port that counts what is asked of it, by method."""

    def __init__(self, port: Any, name: str, counts: Counter[str]) -> None:
        self._port = port
        self._name = name
        self._counts = counts

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._port, method)

        def counted(*args: Any, **given: Any) -> Any:
            self._counts[f"{self._name}.{method}"] += 1
            return found(*args, **given)

        return counted if callable(found) else found


@dataclass(kw_only=True)
class Counted:
    """The services of a sweep, every call counted."""

    settings: Settings
    runs: Any
    queue: Any
    slots: Any
    tokens: Any
    sweeper_state: Any
    clock: FakeClock


class Swept:
    """The services, and the moves of those whom the sweeper cleans up after."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.clock = FakeClock()
        self.runs = MemoryRunStore()
        self.queue = MemoryQueue(self.clock)
        limits = {name: c.max_queue_depth for name, c in self.settings.classes.items()}
        self.slots = MemorySlots(limits, self.settings.slot_shards, hour_seconds=self.settings.slot_hour_seconds)
        self.tokens = MemoryTokens()
        self.sweeper_state = MemorySweeperState()
        self.calls: Counter[str] = Counter()
        ports = {name: Calls(getattr(self, name), name, self.calls) for name in _PORTS}
        self.services = Counted(settings=self.settings, clock=self.clock, **ports)
        self._numbers = 0

    async def with_tenants(self, *names: str) -> Swept:
        """Tenants whose runs are looked after."""
        for number, name in enumerate(names or ("acme",)):
            await self.tokens.put(a_token(number, tenant=name))
        return self

    async def sweep(self) -> SweepReport:
        """One pass."""
        return await sweep(self.services, LIMITS, now=self.clock.now(), expire=_nothing_to_settle)

    async def submit(self, **given: Any) -> Run:
        """A place, and the row that has it; its envelope is anywhere."""
        self._numbers += 1
        now = self.clock.now()
        slot = (await self.slots.reserve("model", now=now)).slot
        envelope = an_envelope(self._numbers, accepted_at=now, slot=slot, deadline=now + timedelta(days=300), **given)
        run = replace(first_version(envelope), write_id=f"w{self._numbers:015d}")
        await self.runs.put(run, IfAbsent(), now=now)
        return run

    async def leave(self, run: Run) -> Slot:
        """The run leaves `queued`; its place, which somebody has to return now."""
        now = self.clock.now()
        ended = replace(
            run, status=Status.SUCCEEDED, version=2, slot=None, finished_at=now, expires_at=now + timedelta(days=30)
        )
        await self.runs.put(ended, IfVersion(version=1, submission=run.submission), now=now)
        assert run.slot is not None
        return run.slot

    async def queued(self) -> Mapping[Slot, int]:
        """The queued rows by place."""
        keys = await self.runs.page("acme", Bucket.ACTIVE, limit=1_000_000)
        stored = self.runs.rows
        rows = [stored[RunKey(tenant=key.tenant, run_id=key.run_id)] for key in keys]
        return Counter(run.slot for run in rows if run.status is Status.QUEUED and run.slot is not None)


_PORTS = ("runs", "queue", "slots", "tokens", "sweeper_state")


async def _nothing_to_settle(run: Run) -> bool:
    raise AssertionError(f"{run.id} was to be settled")
