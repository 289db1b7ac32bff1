"""The memory adapters as AWS would answer a process: late, and not beyond its limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from fanfold.engine.errors import Throttled
from fanfold.engine.ports import Condition, Reservation
from fanfold.engine.record.messages import QueueName, Received
from fanfold.engine.record.run import Run, Slot
from fanfold.service.wiring import Services
from lab.scale.gates import units_of_slot
from lab.scale.limits import Operation
from lab.scale.region import Processor, Region, ShardedSlots

MESSAGES_A_CALL: Final = 10
"""Messages that one call to SQS deletes or hides."""


def services(region: Region, processor: Processor) -> Services:
    """A region's services as a process on that processor sees them."""
    plain, door = region.plain, _Door(region, processor)
    return replace(
        plain,
        runs=_Runs(plain.runs, door),
        queue=_Queue(plain.queue, door),
        slots=_Slots(region.slots, door),
        catalog=_Port(plain.catalog, door, {"current": Operation.GET, "version": Operation.GET}),
    )


@dataclass(frozen=True, slots=True)
class _Door:
    """What a process's calls go through."""

    region: Region
    processor: Processor

    async def asked(self, operation: Operation) -> None:
        """See `Region.asked`."""
        await self.region.asked(operation, self.processor)


class _Port:
    """A port of which some methods are a call each."""

    def __init__(self, inner: Any, door: _Door, operations: Mapping[str, Operation]) -> None:
        self._inner = inner
        self._door = door
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        operation = self._operations.get(name)
        if operation is None:
            return method

        async def asked(*given: Any, **named: Any) -> Any:
            await self._door.asked(operation)
            return await method(*given, **named)

        setattr(self, name, asked)
        return asked


class _Runs(_Port):
    """A `RunStore` within the limits of a table and its indexes."""

    def __init__(self, inner: Any, door: _Door) -> None:
        reads = ("get", "get_many", "page", "due", "segments", "sealed_entries")
        super().__init__(inner, door, {**dict.fromkeys(reads, Operation.GET), "put_segment": Operation.PUT})

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """See `RunStore.put`."""
        await self._door.asked(Operation.PUT)
        region = self._door.region
        units = region.before_put(run)
        item_bytes: int = await self._inner.put(run, condition, now=now)
        region.after_put(run, units, item_bytes)
        return item_bytes


class _Queue(_Port):
    """A `WorkQueue` as SQS answers: no limit of its own that matters here, but its latency."""

    def __init__(self, inner: Any, door: _Door) -> None:
        super().__init__(inner, door, {"send": Operation.SEND})

    async def receive(self, queue: QueueName, **asked: Any) -> Sequence[Received]:
        """See `WorkQueue.receive`."""
        await self._door.asked(Operation.RECEIVE)
        taken: Sequence[Received] = await self._inner.receive(queue, **asked)
        for message in taken:
            if message.message is not None:
                self._door.region.received(message.message.run_id)
        return taken

    async def hide(self, messages: Sequence[Received], *, seconds: int) -> None:
        """See `WorkQueue.hide`."""
        await self._by_tens(Operation.HIDE, messages)
        await self._inner.hide(messages, seconds=seconds)

    async def delete(self, messages: Sequence[Received]) -> None:
        """See `WorkQueue.delete`."""
        await self._by_tens(Operation.DELETE, messages)
        await self._inner.delete(messages)

    async def _by_tens(self, operation: Operation, messages: Sequence[Received]) -> None:
        await asyncio.gather(*(self._door.asked(operation) for _ in range(math.ceil(len(messages) / MESSAGES_A_CALL))))


class _Slots(_Port):
    """A `QueueSlots` within the limits of its counters."""

    def __init__(self, inner: ShardedSlots, door: _Door) -> None:
        super().__init__(inner, door, {})
        self._shards = inner

    async def reserve(self, class_name: str, *, now: datetime) -> Reservation:
        """See `QueueSlots.reserve`."""
        shard = self._shards.drawn()
        await self._counted(shard)
        return await self._shards.reserve_in(class_name, shard, now=now)

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool] = lambda: True) -> None:
        """See `QueueSlots.give_back`."""
        await self._counted(slot.shard)
        await self._shards.give_back(class_name, slot, in_time=in_time)

    async def _counted(self, shard: int) -> None:
        await self._door.asked(Operation.UPDATE)
        gates = self._door.region.gates
        if (kind := gates.passed(self._door.region.now, units_of_slot(shard))) is not None:
            raise Throttled(f"{kind} has no write unit left")
