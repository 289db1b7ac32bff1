"""Records of maps in the table: `{tenant}#{run}#{submission}#{step}` / `{try}#{first index}`, a partition of their own.

Attributes: `z` (N) schema, `d` (S) digest of the plan, `b` (B) the results, compressed; `x` (N) the TTL. Items'
outputs over the inline limit are references (R8).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.pagination import items
from fanfold.adapters.aws.run_items import MAX_ITEM_BYTES, PK, SK, TTL, Item, reads_items, size
from fanfold.adapters.packing import to_ms
from fanfold.adapters.payload_codec import item_error_from_list, item_error_to_list, value_from_list, value_to_list
from fanfold.engine.errors import Conflict, LimitExceeded, NewerSchema, Unreadable
from fanfold.engine.language.maps import ItemResult, MapRecord
from fanfold.engine.payload import Json, dump
from fanfold.engine.ports import MapKey
from fanfold.engine.record.run import SCHEMA
from fanfold.engine.tenant import checked_tenant

_DIGITS: Final = 7
"""A map has under ten million items, a run under ten million tries: as text both sort as numbers do."""


class DynamoMapRecords:
    """A `MapRecords` in the table. `call` carries out the calls (the `Aws` object)."""

    def __init__(self, call: Call, table: str) -> None:
        self._call = call
        self._table = table

    async def put(self, key: MapKey, record: MapRecord, *, expires_at: datetime) -> None:
        """See `MapRecords.put`."""
        item = to_item(key, record, expires_at=expires_at)
        try:
            # An SDK's repetition only finds its own first try, which is as good.
            await self._call(
                Client.DYNAMODB,
                "put_item",
                TableName=self._table,
                Item=item,
                ConditionExpression=f"attribute_not_exists({PK})",
            )
        except Conflict:
            return  # the batch came twice; what was recorded first counts

    async def has(self, key: MapKey, *, try_number: int, first: int) -> bool:
        """See `MapRecords.has`."""
        response = await self._call(
            Client.DYNAMODB,
            "get_item",
            TableName=self._table,
            Key={PK: {"S": _partition(key)}, SK: {"S": sort_key(try_number, first)}},
            ConsistentRead=True,
            ProjectionExpression=PK,
        )
        return "Item" in response

    async def read(self, key: MapKey) -> list[MapRecord]:
        """See `MapRecords.read`."""
        found = await items(
            self._call,
            TableName=self._table,
            KeyConditionExpression=f"{PK} = :p",
            ExpressionAttributeValues={":p": {"S": _partition(key)}},
            ConsistentRead=True,
        )
        return [from_item(item) for item in found]


def to_item(key: MapKey, record: MapRecord, *, expires_at: datetime) -> Item:
    """A batch's record as an item. Raises `LimitExceeded` when no item can hold it."""
    results = [
        item_error_to_list(result.error) if result.error is not None else [result.index, value_to_list(result.output)]
        for result in record.results
    ]
    item: Item = {
        PK: {"S": _partition(key)},
        SK: {"S": sort_key(record.try_number, record.first)},
        "z": {"N": str(SCHEMA)},
        "d": {"S": record.plan},
        "b": {"B": zlib.compress(dump(results), 9)},
        TTL: {"N": str(-(-to_ms(expires_at) // 1000))},
    }
    if (item_bytes := size(item)) > MAX_ITEM_BYTES:
        raise LimitExceeded("dynamodb.item_bytes", f"a batch's record is {item_bytes} bytes, at most {MAX_ITEM_BYTES}")
    return item


def from_item(item: Item) -> MapRecord:
    """The record an item holds; of one that can't be read, that it is damaged: the map's other records go on counting.

    Raises `NewerSchema` when a newer version of the code wrote it.
    """
    try:
        return _from_item(item)
    except NewerSchema:
        raise
    except Unreadable as error:
        try_number, first = (int(part) for part in item[SK]["S"].split("#"))
        return MapRecord(try_number=try_number, first=first, plan="", results=(), damage=str(error))


@reads_items
def _from_item(item: Mapping[str, Any]) -> MapRecord:
    schema = int(item["z"]["N"])
    if schema > SCHEMA:
        raise NewerSchema(f"the record of a batch has schema {schema}, this code reads up to {SCHEMA}")
    try_number, first = (int(part) for part in item[SK]["S"].split("#"))
    return MapRecord(
        try_number=try_number,
        first=first,
        plan=item["d"]["S"],
        results=tuple(_result(row) for row in json.loads(zlib.decompress(item["b"]["B"]))),
    )


def _result(row: list[Json]) -> ItemResult:
    if len(row) == 3:
        return ItemResult(index=row[0], error=item_error_from_list(row))
    return ItemResult(index=row[0], output=value_from_list(row[1]))


def _partition(key: MapKey) -> str:
    return f"{checked_tenant(key.tenant)}#{key.run_id}#{key.submission}#{key.step}"


def sort_key(try_number: int, first: int) -> str:
    """The sort key of a batch's record: tries and first indexes in the order of numbers."""
    return f"{try_number:0{_DIGITS}d}#{first:0{_DIGITS}d}"
