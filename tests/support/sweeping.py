"""A deployment in memory, as far as the sweeper sees it: no API, no worker, a clock the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from functions.adapters.marks import MemoryMarks
from functions.adapters.memory import MemoryPlaces, MemoryQueue, MemoryRunStore, MemoryTokens
from functions.engine.message import first_version
from functions.engine.ports import Absent, Bucket, Replaces, RunKey
from functions.engine.run import Place, Run, Status
from functions.engine.terms import Terms
from functions.runtime.settings import Settings
from functions.runtime.sweeper.sweep import SweepReport, sweep
from tests.support.builders import a_token, an_envelope
from tests.support.clock import FakeClock

TERMS = Terms(
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
    places: Any
    tokens: Any
    marks: Any
    clock: FakeClock


class Swept:
    """The services, and the moves of those whom the sweeper cleans up after."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.clock = FakeClock()
        self.runs = MemoryRunStore()
        self.queue = MemoryQueue(self.clock)
        limits = {name: c.max_queue_depth for name, c in self.settings.classes.items()}
        self.places = MemoryPlaces(limits, self.settings.place_shards, hour_seconds=self.settings.place_hour_seconds)
        self.tokens = MemoryTokens()
        self.marks = MemoryMarks()
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
        return await sweep(self.services, TERMS, now=self.clock.now(), settle=_nothing_to_settle)

    async def submit(self, **given: Any) -> Run:
        """A place, and the row that has it; its envelope is anywhere."""
        self._numbers += 1
        now = self.clock.now()
        place = (await self.places.reserve("model", now=now)).place
        envelope = an_envelope(self._numbers, accepted_at=now, place=place, deadline=now + timedelta(days=300), **given)
        run = replace(first_version(envelope), write_id=f"w{self._numbers:015d}")
        await self.runs.put(run, Absent(), now=now)
        return run

    async def leave(self, run: Run) -> Place:
        """The run leaves `queued`; its place, which somebody has to return now."""
        now = self.clock.now()
        ended = replace(
            run, status=Status.SUCCEEDED, version=2, place=None, finished_at=now, expires_at=now + timedelta(days=30)
        )
        await self.runs.put(ended, Replaces(version=1, submission=run.submission), now=now)
        assert run.place is not None
        return run.place

    async def queued(self) -> Mapping[Place, int]:
        """The queued rows by place."""
        keys = await self.runs.page("acme", Bucket.ACTIVE, limit=1_000_000)
        stored = self.runs.rows
        rows = [stored[RunKey(tenant=key.tenant, run_id=key.run_id)] for key in keys]
        return Counter(run.place for run in rows if run.status is Status.QUEUED and run.place is not None)


_PORTS = ("runs", "queue", "places", "tokens", "marks")


async def _nothing_to_settle(run: Run) -> bool:
    raise AssertionError(f"{run.id} was to be settled")
