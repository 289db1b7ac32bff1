"""Services in memory that count what they would cost in AWS: the same calls, units by the items' sizes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fanfold.adapters.aws import map_records
from fanfold.adapters.aws.run_items import DUE_PK, DUE_SK, LIST_PK, LIST_SK, Item, from_item, size, to_item
from fanfold.adapters.aws.slot_returns import SlotReturns
from fanfold.adapters.memory import MemoryRunStore, RunCodec
from fanfold.adapters.message_codec import encode
from fanfold.engine.payload import dump
from fanfold.engine.ports import Condition, RunKey
from fanfold.engine.record.run import Run, Slot
from fanfold.engine.record.segments import Segment
from fanfold.explore.memory import memory_services
from fanfold.service.clock import SystemClock, SystemIds
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services
from loadtest.aws_meter import CountedPort, Meter

WRITE_UNIT_BYTES = 1_024
READ_UNIT_BYTES = 4_096
MESSAGES_A_CALL = 10
SOME_DAY = datetime(2030, 1, 1, tzinfo=UTC)
"""Any day's number of seconds has as many digits."""


def metered(settings: Settings, meter: Meter) -> tuple[Services, Services]:
    """Empty services in memory whose calls a meter counts, and the same ones of which nothing is counted."""
    plain, _ = memory_services(settings, SystemClock(), SystemIds())
    runs = MeteredRuns(meter)
    counted = replace(
        plain,
        runs=runs,
        queue=_Queue(plain.queue, meter),
        slots=_Slots(plain.slots, meter),
        blobs=CountedPort(plain.blobs, meter, {"put": "PutObject", "get": "GetObject"}),
        catalog=_Catalog(plain.catalog, meter),
        map_records=_Records(plain.map_records, meter),
    )
    return counted, replace(plain, runs=runs.uncounted())


class MeteredRuns(MemoryRunStore):
    """A `RunStore` of items that counts each call and its units. A row of an index is one unit, put or taken out."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(RunCodec(encode=to_item, decode=from_item))
        self._counts = meter

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """See `RunStore.put`."""
        key = RunKey(tenant=run.tenant, run_id=run.id)
        before: Item = self._rows.get(key, {})
        self._counts.call("PutItem")
        item_bytes = await super().put(run, condition, now=now)
        after: Item = self._rows[key]
        index = sum(_index_units(before, after, *names) for names in ((LIST_PK, LIST_SK), (DUE_PK, DUE_SK)))
        units = _units(max(item_bytes, size(before)), WRITE_UNIT_BYTES)
        self._counts.wrote("PutItem", table=units, index=index)
        return item_bytes

    async def put_segment(self, key: RunKey, segment: Segment, *, now: datetime) -> None:
        """See `RunStore.put_segment`."""
        await super().put_segment(key, segment, now=now)
        self._counts.call("PutItem")
        self._counts.wrote("PutItem", table=_units(size(self._segments[key][-1]), WRITE_UNIT_BYTES))

    async def segments(self, run: Run) -> Sequence[Segment]:
        """See `RunStore.segments`."""
        if run.sealed.newest is not None:
            found = self._segments.get(RunKey(tenant=run.tenant, run_id=run.id), [])
            self._counts.call("Query")
            self._counts.read("Query", _units(sum(map(size, found)), READ_UNIT_BYTES))
        return await super().segments(run)

    async def get(self, key: RunKey, *, now: datetime) -> Run | None:
        """See `RunStore.get`."""
        self._counts.call("GetItem")
        self._counts.read("GetItem", _units(self.item_bytes(key), READ_UNIT_BYTES))
        return await super().get(key, now=now)

    def uncounted(self) -> MemoryRunStore:
        """The same records, looked at without counting the look."""
        beside = MemoryRunStore(RunCodec(encode=to_item, decode=from_item))
        beside._rows, beside._segments = self._rows, self._segments
        return beside

    def item_bytes(self, key: RunKey) -> int:
        """The size of a run's head; 0 where there is none."""
        return size(self._rows.get(key, {}))


class _Slots(CountedPort):
    """A `QueueSlots` that counts a write for each slot reserved, and for those given back at about the same time."""

    def __init__(self, port: Any, meter: Meter) -> None:
        super().__init__(port, meter, {"reserve": "UpdateItem"})
        self._returns = SlotReturns(self._subtract)

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool] = lambda: True) -> None:
        """See `QueueSlots.give_back`."""
        await self._returns.add(class_name, slot, in_time)

    async def _subtract(self, class_name: str, slot: Slot, slots: int, in_time: Callable[[], bool]) -> None:
        self._meter.call("UpdateItem")
        self._meter.wrote("UpdateItem", table=1)
        for _ in range(slots):
            await self._port.give_back(class_name, slot, in_time=in_time)


class _Catalog(CountedPort):
    """A `Catalog` that counts the reads of documents, which the table holds compressed."""

    async def current(self, tenant: str, name: str) -> Any:
        """See `Catalog.current`."""
        return self._read(await self._port.current(tenant, name))

    async def version(self, tenant: str, name: str, version: str) -> Any:
        """See `Catalog.version`."""
        return self._read(await self._port.version(tenant, name, version))

    def _read(self, found: Any) -> Any:
        self._meter.call("GetItem")
        stored = 0 if found is None else len(zlib.compress(dump(found.document)))
        self._meter.read("GetItem", _units(stored, READ_UNIT_BYTES))
        return found


class _Records(CountedPort):
    """A `MapRecords` that counts the records of batches."""

    async def put(self, key: Any, record: Any, *, expires_at: datetime) -> None:
        """See `MapRecords.put`."""
        item_bytes = size(map_records.to_item(key, record, expires_at=expires_at))
        self._meter.call("PutItem")
        self._meter.wrote("PutItem", table=_units(item_bytes, WRITE_UNIT_BYTES))
        await self._port.put(key, record, expires_at=expires_at)

    async def has(self, key: Any, **which: Any) -> Any:
        """See `MapRecords.has`."""
        self._meter.call("GetItem")
        self._meter.read("GetItem", 1)
        return await self._port.has(key, **which)

    async def read(self, key: Any) -> Any:
        """See `MapRecords.read`."""
        found = await self._port.read(key)
        sizes = [size(map_records.to_item(key, record, expires_at=SOME_DAY)) for record in found]
        self._meter.call("Query")
        self._meter.read("Query", _units(sum(sizes), READ_UNIT_BYTES))
        return found


class _Queue(CountedPort):
    """A `WorkQueue` that counts requests as SQS bills them."""

    async def send(self, queue: Any, message: Any, *, delay_seconds: int = 0) -> None:
        """See `WorkQueue.send`."""
        self._meter.call("SendMessage")
        self._meter.queued(len(encode(message)), sent=1)
        await self._port.send(queue, message, delay_seconds=delay_seconds)

    async def receive(self, queue: Any, **asked: Any) -> Any:
        """See `WorkQueue.receive`."""
        self._meter.call("ReceiveMessage")
        taken = await self._port.receive(queue, **asked)
        self._meter.queued(sum(len(message.body) for message in taken))
        return taken

    async def hide(self, messages: Sequence[Any], *, seconds: int) -> None:
        """See `WorkQueue.hide`."""
        self._batches("ChangeMessageVisibilityBatch", messages)
        await self._port.hide(messages, seconds=seconds)

    async def delete(self, messages: Sequence[Any]) -> None:
        """See `WorkQueue.delete`."""
        self._batches("DeleteMessageBatch", messages)
        await self._port.delete(messages)

    def _batches(self, operation: str, messages: Sequence[Any]) -> None:
        by_queue: dict[Any, int] = {}
        for message in messages:
            by_queue[message.queue] = by_queue.get(message.queue, 0) + 1
        for count in by_queue.values():
            for _ in range(math.ceil(count / MESSAGES_A_CALL)):
                self._meter.call(operation)
                self._meter.queued(0)


def _units(item_bytes: int, unit_bytes: int) -> int:
    return max(1, -(-item_bytes // unit_bytes))


def _index_units(before: Item, after: Item, partition: str, sort: str) -> int:
    """A row of an index is put, taken out, or, when its key changes, both."""
    was, is_now = ((item.get(partition), item.get(sort)) for item in (before, after))
    return 0 if was == is_now else (was != (None, None)) + (is_now != (None, None))
