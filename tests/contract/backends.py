"""What the contract suite runs on: the same promises, asked of memory, of moto, of the embedded emulator.

And of LocalStack, where `make test-localstack` asks for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

import httpx
import pytest

from functions.adapters.aws import Client
from functions.adapters.catalog import DynamoCatalog
from functions.adapters.dynamo import DynamoRunStore
from functions.adapters.items import SK, from_item, to_item
from functions.adapters.maprecords import DynamoMapRecords, MemoryMapRecords
from functions.adapters.maprecords import to_item as batch_item
from functions.adapters.marks import DynamoMarks, MemoryMarks
from functions.adapters.memory import (
    MemoryBlobs,
    MemoryCatalog,
    MemoryFanOut,
    MemoryPlaces,
    MemoryQueue,
    MemoryRunStore,
    MemoryTokens,
    RunCodec,
)
from functions.adapters.places import DynamoPlaces
from functions.adapters.record import deflate
from functions.adapters.s3 import S3Blobs
from functions.adapters.seats import DynamoSeats, MemorySeats
from functions.adapters.secrets import DynamoSecrets, MemorySecrets
from functions.adapters.segments import to_segment_item
from functions.adapters.sqs import SqsQueue
from functions.adapters.stepfunctions import StepFunctionsFanOut
from functions.adapters.tokens import DynamoTokens
from functions.engine.fanout import MapRecord
from functions.engine.message import QueueName
from functions.engine.ports import (
    Absent,
    Blobs,
    Catalog,
    FanOut,
    MapKey,
    MapRecords,
    Marks,
    Places,
    RunKey,
    RunStore,
    Seats,
    Secrets,
    Tokens,
    WorkQueue,
)
from functions.engine.run import SCHEMA, Run
from functions.engine.segments import Segment
from functions.runtime.wiring import Aws
from tests.support.aws import Stack
from tests.support.builders import a_run
from tests.support.clock import FakeClock, SeededIds

NEWER = {"z": {"N": str(SCHEMA + 1)}, "b": {"B": b"whatever it will be"}}
"""What makes a record one that this code can't read."""

DAMAGES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "newer": NEWER,
    "garbage": {"b": {"B": b"\x00garbage"}},
    "truncated": {"b": {"B": to_item(a_run(99))["b"]["B"][:-9]}},
    "of another shape": {"b": {"B": deflate({"valid": "JSON"}, schema=SCHEMA)}},
    "of too few parts": {"b": {"B": deflate([1, 2, 3], schema=SCHEMA)}},
    "of no form": {"b": {"S": "a text"}},
    "of an unknown status": {"s": {"S": "?"}},
    "of an unknown id": {"u": {"B": b"\x09"}},
    "without a schema": {"z": {"S": "one"}},
}
"""What can be wrong with a record's item: attributes that stand in place of its own."""

PARTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    name: damage for name, damage in DAMAGES.items() if not {"s", "u"} & set(damage)
}
"""What can be wrong with the item of a segment, or of a batch's record."""

MAX_RECEIVES = 3
"""After how many receives the suite's queues give up on a message (10 in a deployment)."""


WITH_INDEX = ["moto", pytest.param("emulator", marks=pytest.mark.emulator)]
"""The backends that keep rows of indexes."""

WITH_RECORDS = ["memory-packed", "moto", pytest.param("emulator", marks=pytest.mark.emulator)]
"""The backends that keep records in the table's own form."""


class Backend(Protocol):
    """One set of services, empty at the start of a test; adapters made of one backend share what they store.

    Stores of runs in memory do where they are asked for by a number of shards, which means nothing there.
    """

    def runs(self, *, shards: int | None = None) -> RunStore: ...

    def queue(self) -> WorkQueue: ...

    def places(self, limits: Mapping[str, int], *, shards: int = 1) -> Places: ...

    def blobs(self) -> Blobs: ...

    def catalog(self) -> Catalog: ...

    def tokens(self) -> Tokens: ...

    def marks(self) -> Marks: ...

    def secrets(self) -> Secrets: ...

    def seats(self, most: int) -> Seats: ...

    def map_records(self) -> MapRecords: ...

    async def fan_out(self) -> FanOut:
        """Executions of it go on until they are stopped."""

    async def send_body(self, queue: WorkQueue, name: QueueName, body: str) -> None:
        """Put any text into a queue, past the adapter."""

    async def pass_time(self, seconds: float) -> None:
        """Let the backend's time go on."""

    async def fetch(self, url: str) -> bytes | None:
        """What a presigned URL reads; None where nothing answers one."""

    async def put_damaged(self, store: RunStore, run: Run, damage: Mapping[str, Any] = NEWER) -> None:
        """Put a record with some attributes of its item replaced. Not for `memory`, where records have no form."""

    async def damage_segment(self, store: RunStore, key: RunKey, segment: Segment, damage: Mapping[str, Any]) -> None:
        """Replace attributes of a segment's item."""

    async def damage_batch(
        self, records: MapRecords, key: MapKey, record: MapRecord, damage: Mapping[str, Any]
    ) -> None:
        """Replace attributes of the item of a batch's record."""


class MemoryBackend:
    """The adapters in memory, on a clock the test moves; packed, records go through the table's own form and back."""

    def __init__(self, *, packed: bool) -> None:
        self._packed = packed
        self._clock = FakeClock()
        self._places: MemoryPlaces | None = None
        self._runs: MemoryRunStore | None = None

    def runs(self, *, shards: int | None = None) -> RunStore:
        if self._runs is None or shards is None:
            self._runs = MemoryRunStore(RunCodec(encode=to_item, decode=from_item) if self._packed else None)
        return self._runs

    def queue(self) -> WorkQueue:
        return MemoryQueue(self._clock, max_receives=MAX_RECEIVES)

    def places(self, limits: Mapping[str, int], *, shards: int = 1) -> Places:
        made = self._places
        self._places = MemoryPlaces(limits, shards) if made is None else made.reconfigured(limits, shards)
        return self._places

    def blobs(self) -> Blobs:
        return MemoryBlobs()

    def catalog(self) -> Catalog:
        return MemoryCatalog()

    def tokens(self) -> Tokens:
        return MemoryTokens()

    def marks(self) -> Marks:
        return MemoryMarks()

    def secrets(self) -> Secrets:
        return MemorySecrets()

    def seats(self, most: int) -> Seats:
        return MemorySeats(most)

    def map_records(self) -> MapRecords:
        return MemoryMapRecords()

    async def fan_out(self) -> FanOut:
        return MemoryFanOut(MemoryBlobs(), MemoryQueue(self._clock))

    async def send_body(self, queue: WorkQueue, name: QueueName, body: str) -> None:
        assert isinstance(queue, MemoryQueue)
        await queue.send_body(name, body)

    async def pass_time(self, seconds: float) -> None:
        await self._clock.advance(seconds)

    async def fetch(self, url: str) -> bytes | None:
        return None

    async def put_damaged(self, store: RunStore, run: Run, damage: Mapping[str, Any] = NEWER) -> None:
        assert isinstance(store, MemoryRunStore)
        assert self._packed
        await store.put(run, Absent(), now=run.created_at)
        store._rows[RunKey(tenant=run.tenant, run_id=run.id)] |= damage

    async def damage_segment(self, store: RunStore, key: RunKey, segment: Segment, damage: Mapping[str, Any]) -> None:
        assert isinstance(store, MemoryRunStore)
        (item,) = (item for item in store._segments[key] if item[SK]["S"] == f"s#{segment.name}")
        item.update(damage)

    async def damage_batch(
        self, records: MapRecords, key: MapKey, record: MapRecord, damage: Mapping[str, Any]
    ) -> None:
        assert isinstance(records, MemoryMapRecords)
        item = batch_item(key, record, expires_at=self._clock.now())
        records._partitions[key][item[SK]["S"]].update(damage)


class AwsBackend:
    """The AWS adapters on a stack of their own, whose queues may look at the time only every `grain` seconds."""

    def __init__(self, aws: Aws, stack: Stack, *, answers_urls: bool, shards: int, grain: float = 0) -> None:
        self._aws = aws
        self._stack = stack
        self._answers_urls = answers_urls
        self._shards = shards
        self._grain = grain
        self._clock = FakeClock()
        self._ids = SeededIds()
        self._queue_time = False

    def runs(self, *, shards: int | None = None) -> RunStore:
        of_indexes = self._shards if shards is None else shards
        return DynamoRunStore(self._aws, self._stack.table, of_indexes, of_indexes)

    def queue(self) -> WorkQueue:
        self._queue_time = True
        return SqsQueue(self._aws, self._stack.urls)

    def places(self, limits: Mapping[str, int], *, shards: int = 1) -> Places:
        return DynamoPlaces(self._aws, self._stack.table, limits, shards, clock=self._clock, ids=self._ids)

    def blobs(self) -> Blobs:
        return S3Blobs(self._aws, self._stack.bucket)

    def catalog(self) -> Catalog:
        return DynamoCatalog(self._aws, self._stack.table)

    def tokens(self) -> Tokens:
        return DynamoTokens(self._aws, self._stack.table)

    def marks(self) -> Marks:
        return DynamoMarks(self._aws, self._stack.table)

    def secrets(self) -> Secrets:
        return DynamoSecrets(self._aws, self._stack.table)

    def seats(self, most: int) -> Seats:
        return DynamoSeats(self._aws, self._stack.table, most)

    def map_records(self) -> MapRecords:
        return DynamoMapRecords(self._aws, self._stack.table)

    async def fan_out(self) -> FanOut:
        made = await self._aws(
            Client.STEP_FUNCTIONS,
            "create_state_machine",
            name=self._stack.table,
            roleArn="arn:aws:iam::123456789012:role/waits",
            definition=json.dumps(
                {"StartAt": "Long", "States": {"Long": {"Type": "Wait", "Seconds": 300, "End": True}}}
            ),
        )
        return StepFunctionsFanOut(self._aws, {"model": made["stateMachineArn"]})

    async def send_body(self, queue: WorkQueue, name: QueueName, body: str) -> None:
        await self._aws(Client.SQS, "send_message", QueueUrl=self._stack.urls[name], MessageBody=body)

    async def pass_time(self, seconds: float) -> None:
        await self._clock.advance(seconds)
        if self._queue_time:  # only SQS lives by a clock that can't be moved
            await asyncio.sleep(seconds + self._grain)

    async def fetch(self, url: str) -> bytes | None:
        if not self._answers_urls:
            return None
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(url)).raise_for_status().content

    async def put_damaged(self, store: RunStore, run: Run, damage: Mapping[str, Any] = NEWER) -> None:
        item = {**to_item(run, index_shards=self._shards, due_shards=self._shards), **damage}
        await self._aws(Client.DYNAMODB, "put_item", TableName=self._stack.table, Item=item)

    async def damage_segment(self, store: RunStore, key: RunKey, segment: Segment, damage: Mapping[str, Any]) -> None:
        item = {**to_segment_item(key, segment, written_at=self._clock.now()), **damage}
        await self._aws(Client.DYNAMODB, "put_item", TableName=self._stack.table, Item=item)

    async def damage_batch(
        self, records: MapRecords, key: MapKey, record: MapRecord, damage: Mapping[str, Any]
    ) -> None:
        item = {**batch_item(key, record, expires_at=self._clock.now()), **damage}
        await self._aws(Client.DYNAMODB, "put_item", TableName=self._stack.table, Item=item)
