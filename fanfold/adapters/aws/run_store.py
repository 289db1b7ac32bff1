"""Runs' records in DynamoDB: conditional whole-item puts, strong reads, two indexes that only find."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from fanfold.adapters.aws import pagination
from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import (
    DUE_INDEX,
    DUE_PK,
    DUE_SK,
    LIST_INDEX,
    LIST_PK,
    LIST_SK,
    MAX_ITEM_BYTES,
    PK,
    SK,
    TTL,
    Item,
    due_key,
    due_partition,
    expired,
    from_item,
    head_key,
    index_key,
    list_partition,
    pack,
    run_key,
    seconds,
    size,
    to_item,
)
from fanfold.adapters.aws.segments import chain, page_of, read_segment, segment_key, segment_range, to_segment_item
from fanfold.adapters.aws.shards import Shards
from fanfold.adapters.packing import to_ms
from fanfold.engine.errors import Conflict, LimitExceeded, NotFound, Throttled, Unreadable
from fanfold.engine.ports import Condition, DueKey, FirstClaim, IfAbsent, IfVersion, IndexKey, RunKey
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import SCHEMA, Run
from fanfold.engine.record.segments import Segment, segment_parts

MAX_BATCH_KEYS: Final = 100
"""BatchGetItem takes no more keys in one call."""

BATCH_TRIES: Final = 6
"""Rounds of BatchGetItem for keys it leaves over, waiting 50 ms doubling between: 1.6 s in all."""

SEGMENTS_BESIDE: Final = 4
"""Segments asked for beside those full of a page's entries: its two ends, and those that tell orphans from others."""

ENTRIES_EACH: Final = 20
"""Entries that one segment of a long run holds, at least, when its steps are small."""

_ABSENT: Final = f"attribute_not_exists({PK})"
_EXPIRED: Final = f"{TTL} < :now"
_ALIVE: Final = f"(attribute_not_exists({TTL}) OR {TTL} >= :now)"
_MY_FIRST: Final = "(n = :n AND u = :u AND z <= :z)"
_THAT_VERSION: Final = "(n = :n AND u = :u)"


class DynamoRunStore:
    """A `RunStore` in one table. `call` carries out the calls (the `Aws` object); shards as in `Settings`.

    They may change at any time: entries are written to so many shards, and read from as many as there ever were.

    Puts are never repeated below this class: a put whose answer is lost raises `Unanswered`, and
    the caller recognises its own write by the record's write id or owner (R3).
    """

    def __init__(
        self,
        call: Call,
        table: str,
        index_shards: int = 1,
        due_shards: int = 1,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._call = call
        self._table = table
        self._shards = Shards(call, table, index=index_shards, due=due_shards)
        self._sleep = sleep

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """See `RunStore.put`. `NewerSchema` when what stands was written by newer code."""
        item = to_item(run, index_shards=self._shards.index, due_shards=self._shards.due)
        if (item_bytes := size(item)) > MAX_ITEM_BYTES:
            raise LimitExceeded("dynamodb.item_bytes", f"the record is {item_bytes} bytes, at most {MAX_ITEM_BYTES}")
        expression, values = _condition(condition, now)
        try:
            await self._call(
                Client.DYNAMODB_ONCE,
                "put_item",
                TableName=self._table,
                Item=item,
                ConditionExpression=expression,
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except Conflict as conflict:
            raise Conflict(_live(conflict.current, now)) from conflict
        return item_bytes

    async def put_segment(self, key: RunKey, segment: Segment, *, now: datetime) -> None:
        """See `RunStore.put_segment`. Its name is drawn anew for each put of a head: a repetition changes nothing."""
        item = to_segment_item(key, segment, written_at=now)
        if (item_bytes := size(item)) > MAX_ITEM_BYTES:
            raise LimitExceeded("dynamodb.item_bytes", f"the segment is {item_bytes} bytes, at most {MAX_ITEM_BYTES}")
        await self._call(Client.DYNAMODB, "put_item", TableName=self._table, Item=item)

    async def segments(self, run: Run) -> Sequence[Segment]:
        """See `RunStore.segments`: one query for each megabyte of them."""
        if run.sealed.newest is None:
            return []
        items, start = await self._segments(run, *segment_range(run.submission))
        while start:
            more, start = await self._segments(run, *segment_range(run.submission), **start)
            items += more
        return chain(run, items)

    async def sealed_entries(self, run: Run, *, after: int, limit: int) -> Sequence[Entry]:
        """See `RunStore.sealed_entries`: a query for where they begin, and mostly one for what is there."""
        if after >= run.sealed.last_seq:
            return []
        low, high = segment_range(run.submission)
        if after:
            # The last segment that begins no later: in one that begins so is what comes after.
            until = segment_key(run.submission, after + 2)
            found, _ = await self._segments(run, low, until, Limit=1, ScanIndexForward=False)
            if found:
                low = segment_key(run.submission, segment_parts(found[0][SK]["S"])[0])
        segments: list[Segment | Unreadable] = []
        start: dict[str, Any] = {"Limit": limit // ENTRIES_EACH + SEGMENTS_BESIDE}
        while True:
            items, start = await self._segments(run, low, high, **start)
            segments += map(read_segment, items)
            page = page_of(run, segments, after=after, limit=limit, all_there=not start)
            if page is not None:
                return page

    async def _segments(self, run: Run, first: str, last: str, **given: Any) -> tuple[list[Item], dict[str, Any]]:
        """Items between two sort keys, by one strongly consistent query; and what to ask the next one with, if any."""
        response = await self._call(
            Client.DYNAMODB,
            "query",
            TableName=self._table,
            KeyConditionExpression=f"{PK} = :p AND {SK} BETWEEN :a AND :z",
            ExpressionAttributeValues={
                ":p": head_key(run.tenant, run.id)[PK],
                ":a": {"S": first},
                ":z": {"S": last},
            },
            ConsistentRead=True,
            **given,
        )
        last_key = response.get("LastEvaluatedKey")
        return response["Items"], {} if last_key is None else {**given, "ExclusiveStartKey": last_key}

    async def get(self, key: RunKey, *, now: datetime) -> Run | None:
        """See `RunStore.get`."""
        response = await self._call(
            Client.DYNAMODB,
            "get_item",
            TableName=self._table,
            Key=head_key(key.tenant, key.run_id),
            ConsistentRead=True,
        )
        return _live(response.get("Item"), now)

    async def get_many(self, keys: Sequence[RunKey], *, now: datetime) -> Mapping[RunKey, Run | Unreadable]:
        """See `RunStore.get_many`. `Throttled` when DynamoDB keeps leaving keys over."""
        if len(keys) > MAX_BATCH_KEYS:
            raise LimitExceeded("dynamodb.batch_get_keys", f"{len(keys)} keys, at most {MAX_BATCH_KEYS}")
        items: list[Item] = []
        # A key named twice is refused by the service.
        pending = [head_key(key.tenant, key.run_id) for key in dict.fromkeys(keys)]
        for attempt in range(BATCH_TRIES):
            if not pending:
                break
            if attempt:
                await self._sleep(0.05 * 2 ** (attempt - 1))
            response = await self._call(
                Client.DYNAMODB,
                "batch_get_item",
                RequestItems={self._table: {"Keys": pending, "ConsistentRead": True}},
            )
            items += response["Responses"].get(self._table, [])
            pending = response.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
        if pending:
            raise Throttled(f"{len(pending)} keys were left over by {BATCH_TRIES} calls of BatchGetItem")
        return {run_key(item): _read(item) for item in items if not expired(item, now)}

    async def remove_unreadable(self, key: RunKey) -> bool:
        """See `RunStore.remove_unreadable`. The head's blob and its version stand for the whole record."""
        item_key = head_key(key.tenant, key.run_id)
        response = await self._call(
            Client.DYNAMODB, "get_item", TableName=self._table, Key=item_key, ConsistentRead=True
        )
        item = response.get("Item")
        if item is None or await self._readable(_read(item)):
            return False
        names = {"#b": "b", "#n": "n"}
        same = [f"{name} = {name.replace('#', ':')}" for name, real in names.items() if real in item]
        gone = [f"attribute_not_exists({name})" for name, real in names.items() if real not in item]
        values = {name.replace("#", ":"): item[real] for name, real in names.items() if real in item}
        more: dict[str, Any] = {"ExpressionAttributeValues": values} if values else {}
        try:
            await self._call(
                Client.DYNAMODB_ONCE,
                "delete_item",
                TableName=self._table,
                Key=item_key,
                ConditionExpression=" AND ".join([f"attribute_exists({PK})", *same, *gone]),
                ExpressionAttributeNames=names,
                **more,
            )
        except Conflict:
            return False
        return True

    async def _readable(self, head: Run | Unreadable) -> bool:
        """Whether a record can be read, with all that is sealed of it."""
        if isinstance(head, Unreadable):
            return False
        try:
            await self.segments(head)
        except (Unreadable, NotFound):
            return False
        return True

    async def page(
        self, tenant: str, bucket: str, *, limit: int, before: IndexKey | None = None, ascending: bool = False
    ) -> Sequence[IndexKey]:
        """See `RunStore.page`: all shards at once, merged."""
        mark = None if before is None else before.order
        shards, _ = await self._shards.most()
        entries = await self._query_shards(
            (list_partition(tenant, bucket, shard) for shard in range(shards)),
            index=LIST_INDEX,
            partition=LIST_PK,
            beyond=None if mark is None else (f"{LIST_SK} {'>' if ascending else '<'} :s", {"S": mark}),
            limit=limit,
            ascending=ascending,
        )
        merged = heapq.merge(*entries, key=lambda entry: str(entry[LIST_SK]["S"]), reverse=not ascending)
        return [index_key(entry) for entry in itertools.islice(merged, limit)]

    async def due(self, class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        """See `RunStore.due`: all shards at once, merged."""
        _, shards = await self._shards.most()
        entries = await self._query_shards(
            (due_partition(class_name, shard) for shard in range(shards)),
            index=DUE_INDEX,
            partition=DUE_PK,
            beyond=(f"{DUE_SK} <= :s", {"N": str(to_ms(until))}),
            limit=limit,
            ascending=True,
        )
        merged = heapq.merge(*entries, key=lambda entry: Decimal(entry[DUE_SK]["N"]))
        return [due_key(entry) for entry in itertools.islice(merged, limit)]

    async def _query_shards(self, partitions: Iterable[str], **query: Any) -> list[list[Item]]:
        return await asyncio.gather(*(self._query(name, **query) for name in partitions))

    async def _query(
        self,
        partition_name: str,
        *,
        index: str,
        partition: str,
        beyond: tuple[str, Mapping[str, str]] | None,
        limit: int,
        ascending: bool,
    ) -> list[Item]:
        expression, values = f"{partition} = :p", {":p": {"S": partition_name}}
        if beyond is not None:
            expression += f" AND {beyond[0]}"
            values[":s"] = dict(beyond[1])
        return await pagination.items(
            self._call,
            limit=limit,
            TableName=self._table,
            IndexName=index,
            KeyConditionExpression=expression,
            ExpressionAttributeValues=values,
            ScanIndexForward=ascending,
        )


def _read(item: Item) -> Run | Unreadable:
    try:
        return from_item(item)
    except Unreadable as error:
        return error


def _live(item: Item | None, now: datetime) -> Run | None:
    return None if item is None or expired(item, now) else from_item(item)


def _condition(condition: Condition, now: datetime) -> tuple[str, Item]:
    """A condition for DynamoDB. An expired record counts as absent in each of them."""
    values: Item = {":now": {"N": seconds(now)}}
    match condition:
        case IfAbsent():
            return f"{_ABSENT} OR {_EXPIRED}", values
        case FirstClaim(submission=submission):
            # A first version in a newer schema is not ours to replace (R12).
            values |= {":n": {"N": "1"}, ":u": {"B": pack(submission)}, ":z": {"N": str(SCHEMA)}}
            return f"{_ABSENT} OR {_EXPIRED} OR {_MY_FIRST}", values
        case IfVersion(version=version, submission=submission):
            values |= {":n": {"N": str(version)}, ":u": {"B": pack(submission)}}
            return f"{_THAT_VERSION} AND {_ALIVE}", values
