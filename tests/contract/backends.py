"""What the contract suite runs on: the same promises, asked of memory, of moto, of the embedded emulator.

And of LocalStack, where `make test-localstack` asks for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.catalog import DynamoCatalog
from fanfold.adapters.aws.map_records import DynamoMapRecords
from fanfold.adapters.aws.map_records import to_item as batch_item
from fanfold.adapters.aws.run_items import SK, from_item, to_item
from fanfold.adapters.aws.run_store import DynamoRunStore
from fanfold.adapters.aws.s3 import S3Blobs
from fanfold.adapters.aws.seats import DynamoSeats
from fanfold.adapters.aws.secrets import DynamoSecrets
from fanfold.adapters.aws.segments import to_segment_item
from fanfold.adapters.aws.slots import DynamoSlots
from fanfold.adapters.aws.sqs import SqsQueue
from fanfold.adapters.aws.stepfunctions import StepFunctionsFanOut
from fanfold.adapters.aws.sweeper_state import DynamoSweeperState
from fanfold.adapters.aws.tokens import DynamoTokens
from fanfold.adapters.memory import (
    MemoryBlobs,
    MemoryCatalog,
    MemoryFanOut,
    MemoryMapRecords,
    MemoryQueue,
    MemoryRunStore,
    MemorySeats,
    MemorySecrets,
    MemorySlots,
    MemorySweeperState,
    MemoryTokens,
    RunCodec,
)
from fanfold.adapters.packing import deflate
from fanfold.adapters.sqlite import Database, SqliteBlobs, SqliteFanOut, SqliteQueue, SqliteTable
from fanfold.adapters.sqlite.blobs import PATH
from fanfold.engine.language.maps import MapRecord
from fanfold.engine.ports import (
    Blobs,
    Catalog,
    FanOut,
    IfAbsent,
    MapKey,
    MapRecords,
    QueueSlots,
    RunKey,
    RunStore,
    Seats,
    Secrets,
    SweeperState,
    Tokens,
    WorkQueue,
)
from fanfold.engine.record.messages import QueueName
from fanfold.engine.record.run import SCHEMA, Run
from fanfold.engine.record.segments import Segment
from fanfold.service.aws_clients import Aws
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


WITH_INDEX = ["sqlite", "moto", pytest.param("emulator", marks=pytest.mark.emulator)]
"""The backends that keep rows of indexes."""

WITH_RECORDS = ["memory-packed", "sqlite", "moto", pytest.param("emulator", marks=pytest.mark.emulator)]
"""The backends that keep records in the table's own form."""


class Backend(Protocol):
    """One set of services, empty at the start of a test; adapters made of one backend share what they store.

    Stores of runs in memory do where they are asked for by a number of shards, which means nothing there.
    """

    def runs(self, *, shards: int | None = None) -> RunStore: ...

    def queue(self) -> WorkQueue: ...

    def slots(self, limits: Mapping[str, int], *, shards: int = 1) -> QueueSlots: ...

    def blobs(self) -> Blobs: ...

    def catalog(self) -> Catalog: ...

    def tokens(self) -> Tokens: ...

    def sweeper_state(self) -> SweeperState: ...

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
        self._slots: MemorySlots | None = None
        self._runs: MemoryRunStore | None = None

    def runs(self, *, shards: int | None = None) -> RunStore:
        if self._runs is None or shards is None:
            self._runs = MemoryRunStore(RunCodec(encode=to_item, decode=from_item) if self._packed else None)
        return self._runs

    def queue(self) -> WorkQueue:
        return MemoryQueue(self._clock, max_receives=MAX_RECEIVES)

    def slots(self, limits: Mapping[str, int], *, shards: int = 1) -> QueueSlots:
        made = self._slots
        self._slots = MemorySlots(limits, shards) if made is None else made.reconfigured(limits, shards)
        return self._slots

    def blobs(self) -> Blobs:
        return MemoryBlobs()

    def catalog(self) -> Catalog:
        return MemoryCatalog()

    def tokens(self) -> Tokens:
        return MemoryTokens()

    def sweeper_state(self) -> SweeperState:
        return MemorySweeperState()

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
        await store.put(run, IfAbsent(), now=run.created_at)
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


class TableBackend:
    """What is kept in the table, in whatever answers the table's calls."""

    def __init__(self, call: Call, table: str, *, shards: int) -> None:
        self._call = call
        self._table = table
        self._shards = shards
        self._clock = FakeClock()
        self._ids = SeededIds()

    def runs(self, *, shards: int | None = None) -> RunStore:
        of_indexes = self._shards if shards is None else shards
        return DynamoRunStore(self._call, self._table, of_indexes, of_indexes)

    def slots(self, limits: Mapping[str, int], *, shards: int = 1) -> QueueSlots:
        return DynamoSlots(self._call, self._table, limits, shards, clock=self._clock, ids=self._ids)

    def catalog(self) -> Catalog:
        return DynamoCatalog(self._call, self._table)

    def tokens(self) -> Tokens:
        return DynamoTokens(self._call, self._table)

    def sweeper_state(self) -> SweeperState:
        return DynamoSweeperState(self._call, self._table)

    def secrets(self) -> Secrets:
        return DynamoSecrets(self._call, self._table)

    def seats(self, most: int) -> Seats:
        return DynamoSeats(self._call, self._table, most)

    def map_records(self) -> MapRecords:
        return DynamoMapRecords(self._call, self._table)

    async def put_damaged(self, store: RunStore, run: Run, damage: Mapping[str, Any] = NEWER) -> None:
        item = {**to_item(run, index_shards=self._shards, due_shards=self._shards), **damage}
        await self._call(Client.DYNAMODB, "put_item", TableName=self._table, Item=item)

    async def damage_segment(self, store: RunStore, key: RunKey, segment: Segment, damage: Mapping[str, Any]) -> None:
        item = {**to_segment_item(key, segment, written_at=self._clock.now()), **damage}
        await self._call(Client.DYNAMODB, "put_item", TableName=self._table, Item=item)

    async def damage_batch(
        self, records: MapRecords, key: MapKey, record: MapRecord, damage: Mapping[str, Any]
    ) -> None:
        item = {**batch_item(key, record, expires_at=self._clock.now()), **damage}
        await self._call(Client.DYNAMODB, "put_item", TableName=self._table, Item=item)


class AwsBackend(TableBackend):
    """The AWS adapters on a stack of their own, whose queues may look at the time only every `grain` seconds."""

    def __init__(self, aws: Aws, stack: Stack, *, answers_urls: bool, shards: int, grain: float = 0) -> None:
        super().__init__(aws, stack.table, shards=shards)
        self._aws = aws
        self._stack = stack
        self._answers_urls = answers_urls
        self._grain = grain
        self._queue_time = False

    def queue(self) -> WorkQueue:
        self._queue_time = True
        return SqsQueue(self._aws, self._stack.urls)

    def blobs(self) -> Blobs:
        return S3Blobs(self._aws, self._stack.bucket)

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


class SqliteBackend(TableBackend):
    """The adapters on a SQLite file, on a clock the test moves."""

    def __init__(self, database: Database) -> None:
        super().__init__(SqliteTable(database), "", shards=1)
        self._database = database

    def queue(self) -> WorkQueue:
        return SqliteQueue(self._database, self._clock, max_receives=MAX_RECEIVES)

    def blobs(self) -> Blobs:
        return self._payloads()

    def _payloads(self) -> SqliteBlobs:
        base_url = "http://127.0.0.1:8000"
        return SqliteBlobs(self._database, self._clock, base_url=base_url, secrets=self.secrets(), ids=self._ids)

    async def fan_out(self) -> FanOut:
        return SqliteFanOut(self._database, self._clock, self._payloads(), self.queue())

    async def send_body(self, queue: WorkQueue, name: QueueName, body: str) -> None:
        assert isinstance(queue, SqliteQueue)
        await queue.send_body(name, body)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(0.05)  # what waits for the file comes to wait for the clock
        await self._clock.advance(seconds)

    async def fetch(self, url: str) -> bytes | None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        return await self._payloads().presigned(
            parts.path.removeprefix(PATH), until=query["until"], signature=query["signature"]
        )
