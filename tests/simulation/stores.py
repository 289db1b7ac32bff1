"""The services themselves: the in-memory ones, with lagging indexes, a purge, and the audit looking on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fanfold.adapters.memory import MemoryBlobs, MemoryQueue, MemoryRunStore, MemorySlots, RunCodec
from fanfold.adapters.memory.run_store import bucket_of
from fanfold.adapters.message_codec import decode
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import Condition, DueKey, IndexKey, Reservation
from fanfold.engine.record.messages import RESUME, Envelope, Message, QueueName
from fanfold.engine.record.run import Run, Slot, Status
from fanfold.engine.record.sealing import merged

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Store(MemoryRunStore):
    """Runs' records; the indexes say what was true `lag` seconds ago."""

    def __init__(self, simulation: Simulation, codec: RunCodec | None, *, lag: float) -> None:
        super().__init__(codec)
        self._simulation = simulation
        self._lag = lag

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        size = await super().put(run, condition, now=now)
        self._simulation.audit.wrote(merged(run, await self.segments(run)))
        return size

    async def page(
        self, tenant: str, bucket: str, *, limit: int, before: IndexKey | None = None, ascending: bool = False
    ) -> Sequence[IndexKey]:
        rows = sorted(
            (run.created_at, run.id) for run in self._then() if run.tenant == tenant and bucket_of(run) == bucket
        )
        if before is not None:
            mark = (before.created_at, before.run_id)
            rows = [row for row in rows if (row > mark if ascending else row < mark)]
        chosen = rows if ascending else rows[::-1]
        return [IndexKey(tenant=tenant, run_id=run_id, created_at=at) for at, run_id in chosen[:limit]]

    async def due(self, class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        waiting = sorted(
            (run.due_at, run.tenant, run.id)
            for run in self._then()
            if run.status is Status.WAITING
            and run.class_name == class_name
            and run.due_at is not None
            and run.due_at <= until
        )
        return [DueKey(tenant=tenant, run_id=run_id, due_at=due_at) for due_at, tenant, run_id in waiting[:limit]]

    def _then(self) -> list[Run]:
        audit, at = self._simulation.audit, self._simulation.loop.time() - self._lag
        return [run for key in audit.latest if (run := audit.as_of(key, at)) is not None]


class Queue(MemoryQueue):
    """Queues an operator may purge."""

    def __init__(self, simulation: Simulation, *, max_receives: int) -> None:
        super().__init__(simulation.clock, max_receives=max_receives)
        self._simulation = simulation
        self.deleted: set[QueueName] = set()
        self._waiting: dict[int, dict[asyncio.Future[None], float]] = {}

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        await super().send(queue, message, delay_seconds=delay_seconds)
        if isinstance(message, Envelope):
            right = queue.role in (message.lane, RESUME)
            self._simulation.audit.hold(right, "an envelope waits in its run's lane, or apart", queue)
            self._simulation.audit.admissions.sent(message)

    async def _change(self, queue: QueueName, seconds: float) -> None:
        """As in memory, but without tasks, and a poller is woken only by what it can have: most are idle mostly."""
        loop = self._simulation.loop
        ended = loop.create_future()
        timer = loop.call_later(seconds, _end, ended)
        waiting = self._waiting.setdefault(id(self._queue(queue)), {})
        waiting[ended] = loop.time() + seconds
        try:
            await ended
        finally:
            timer.cancel()
            del waiting[ended]

    def _hide(self, it: Any, stored: Any, seconds: float) -> None:
        super()._hide(it, stored, seconds)
        for ended, until in self._waiting.get(id(it), {}).items():
            if stored.visible_at < until:
                _end(ended)

    def purge(self, name: QueueName) -> list[Message]:
        """All its messages are gone, those in hand too."""
        queue = self._queue(name)
        gone = [decode(stored.body).message for stored in queue.messages.values()]
        for message_id in list(queue.messages):
            self._drop(queue, message_id)
        return [message for message in gone if message is not None]

    def by_run(self) -> Counter[str]:
        """How many messages there are about each run, dead letters too."""
        bodies = [stored.body for queue in self._queues.values() for stored in queue.messages.values()]
        messages = [decode(body).message for body in bodies]
        return Counter(message.run_id for message in messages if message is not None)

    def __len__(self) -> int:
        return sum(len(queue.messages) for queue in self._queues.values())


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Slots(MemorySlots):
    """The counter of queue slots."""

    def __init__(
        self, simulation: Simulation, limits: Mapping[str, int], shards: int = 1, *, hour_seconds: int
    ) -> None:
        super().__init__(limits, shards, hour_seconds=hour_seconds)
        self._simulation = simulation

    def reconfigured(self, limits: Mapping[str, int], shards: int | None = None) -> Slots:
        """See `MemorySlots.reconfigured`."""
        shards = self._shards if shards is None else shards
        other = Slots(self._simulation, limits, shards, hour_seconds=self._hour_seconds)
        other._classes = self._classes
        return other

    @property
    def taken(self) -> int:
        """Slots taken, of all classes."""
        return sum(shard.taken for it in self._classes.values() for shard in it.shards)

    async def reserve(self, class_name: str, *, now: datetime) -> Reservation:
        reservation = await super().reserve(class_name, now=now)
        it = self._classes[class_name]
        taken = sum(shard.taken for shard in it.shards)
        within = not it.limit or taken <= it.limit
        self._simulation.audit.hold(within, "nothing is admitted past the bound", f"{taken} > {it.limit}")
        self._simulation.audit.admissions.reserved += 1
        return reservation

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool] = lambda: True) -> None:
        await super().give_back(class_name, slot, in_time=in_time)
        self._simulation.audit.admissions.given_back()

    async def write_off(self, class_name: str, slot: Slot, *, surplus: int, standing: int) -> bool:
        done = await super().write_off(class_name, slot, surplus=surplus, standing=standing)
        self._simulation.audit.admissions.check()
        return done


class Blobs(MemoryBlobs):
    """Payloads; a key is used for one content only."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    @property
    def objects(self) -> dict[str, bytes]:
        """Everything stored, by key."""
        return self._objects

    async def put(self, key: str, data: bytes) -> BlobRef:
        same: Any = self._objects.get(key, data)
        self._simulation.audit.hold(same == data, "an object is immutable", key)
        return await super().put(key, data)
