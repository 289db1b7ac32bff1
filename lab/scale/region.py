"""One deployment on virtual time: its records in memory, AWS's latencies, the limits, and what became of each run."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fanfold.adapters.memory import MemorySlots
from fanfold.engine.errors import Throttled
from fanfold.engine.ports import Reservation
from fanfold.engine.record.run import Run
from fanfold.explore.memory import memory_services
from fanfold.testing.virtual_time import SeededIds, VirtualClock
from lab.scale.deployment import Deployment, Kind
from lab.scale.gates import Gates, Rows, Units, units_of_put
from lab.scale.limits import LATENCIES, PROCESSOR_MB, Operation

UNIT_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One put of a run's record, as it was let through: when, how long after what came before it, its units by kind.

    What came before is the run's last put, or its message's receipt.
    """

    at: float
    gap: float
    units: Mapping[Kind, float]


@dataclass(slots=True, kw_only=True)
class Course:
    """What became of one run, in seconds of virtual time: accepted, first claimed, ended, and its writes by workers."""

    accepted: float
    claimed: float | None = None
    ended: float | None = None
    touched: float = 0.0
    writes: list[Write]


class Processor:
    """A process's share of a processor: what it computes, it computes one after the other."""

    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self._free_at = 0.0

    @classmethod
    def of_function(cls, memory_mb: int) -> Processor:
        """What a function of that memory has."""
        return cls(min(1.0, memory_mb / PROCESSOR_MB))

    async def compute(self, seconds: float) -> None:
        """Be busy for so many seconds of a whole processor."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + seconds / self._share
        await asyncio.sleep(self._free_at - now)


class Region:
    """One deployment: `plain` services outside all limits, `calls` by operation, `gates`, `courses` of runs.

    `call_seconds` is what a process computes for each of its calls. Made and used within one virtual loop.
    """

    def __init__(self, deployment: Deployment, *, call_seconds: float, seed: int = 0) -> None:
        self.deployment = deployment
        self.settings = deployment.settings()
        plain, _ = memory_services(self.settings, VirtualClock(), SeededIds(seed))
        bounds = {name: of_class.max_queue_depth for name, of_class in self.settings.classes.items()}
        self.slots = ShardedSlots(bounds, deployment.slot_shards, random.Random(f"places/{seed}"))
        self.plain = replace(plain, slots=self.slots)
        self.gates = Gates(deployment)
        self.calls: Counter[Operation] = Counter()
        self.courses: dict[str, Course] = {}
        self.ended = 0
        self.news = asyncio.Event()
        self._call_seconds = call_seconds
        self._random = random.Random(f"latency/{seed}")
        self._rows: dict[str, Rows] = {}

    @property
    def now(self) -> float:
        """Seconds since the loop began."""
        return asyncio.get_running_loop().time()

    async def answer(self, operation: Operation) -> None:
        """Wait as long as AWS takes for one call."""
        self.calls[operation] += 1
        await asyncio.sleep(LATENCIES[operation].seconds(self._random.gauss(0.0, 1.0)))

    async def asked(self, operation: Operation, processor: Processor) -> None:
        """One call of a process: what it computes for it, and AWS's time."""
        await processor.compute(self._call_seconds)
        await self.answer(operation)

    def accepted(self, run_id: str) -> None:
        """A run is there: a submit that goes by no limit has put it."""
        self.courses[run_id] = Course(accepted=self.now, writes=[])

    def received(self, run_id: str) -> None:
        """A worker has a run's message in hand."""
        course = self.courses.get(run_id)
        if course is not None:
            course.touched = self.now

    def before_put(self, run: Run) -> Units:
        """The units of a put. Raises `Throttled` where a limit has none left."""
        units = units_of_put(self._rows.get(run.id), Rows.of(run, self.deployment))
        if (kind := self.gates.passed(self.now, units)) is not None:
            raise Throttled(f"{kind} has no write unit left")
        return units

    def after_put(self, run: Run, units: Units, item_bytes: int) -> None:
        """A put was done, of an item of so many bytes."""
        more = math.ceil(item_bytes / UNIT_BYTES) - 1.0
        if more > 0:
            # How big it is is known only now; what is over is owed.
            self.gates.taken(self.now, {(Kind.TABLE, 0): more})
        self.know(run)
        course = self.courses.setdefault(run.id, Course(accepted=self.now, writes=[]))
        if run.epoch:
            by_kind: dict[Kind, float] = {Kind.TABLE: more}
            for (kind, _), count in units.items():
                by_kind[kind] = by_kind.get(kind, 0.0) + count
            course.writes.append(Write(at=self.now, gap=self.now - course.touched, units=by_kind))
            course.touched = self.now
            if course.claimed is None:
                course.claimed = self.now
        if run.terminal:
            course.ended = self.now
            self.ended += 1
            self.news.set()

    def know(self, run: Run) -> None:
        """Remember where the indexes have a run."""
        self._rows[run.id] = Rows.of(run, self.deployment)


class ShardedSlots(MemorySlots):
    """Counters of which the next reservation draws one, as in the table; `drawn` says which."""

    def __init__(self, bounds: Mapping[str, int], shards: int, rng: random.Random) -> None:
        super().__init__(bounds, shards)
        self._draws = rng
        self._count = shards

    def drawn(self) -> int:
        """A shard."""
        return self._draws.randrange(self._count)

    async def reserve_in(self, class_name: str, shard: int, *, now: datetime) -> Reservation:
        """Take a slot of that shard first."""
        self._class(class_name).turn = shard - 1
        return await self.reserve(class_name, now=now)
