"""Workflow documents in the table.

A version's item: `w` (S) name, `v` (S) version, `t` (N) first registered at, in ms, `d` (B) the document, compressed.
The current version's item holds the same, so that a submit that names no version needs one read.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.pagination import items
from fanfold.adapters.aws.run_items import MAX_ITEM_BYTES, PK, SK, Item, reads_items, size
from fanfold.adapters.packing import from_ms, to_ms
from fanfold.engine.errors import Conflict, LimitExceeded
from fanfold.engine.payload import dump, parse
from fanfold.engine.ports import Listed, Registered
from fanfold.engine.tenant import checked_tenant

_AFTER_HASH: Final = "$"
"""The character after '#': ends the range of the sort keys that begin with 'c#'."""
_BEFORE_NAMES: Final = "!"
"""Sorts before every character of a name: `c#{name}!` is past the name and before any longer one."""


class DynamoCatalog:
    """A `Catalog` in the table. `call` carries out the calls (the `Aws` object).

    Two registrations of different documents at the same moment are both kept; which of them is
    current is then decided by the last write, as if one had come after the other.
    """

    def __init__(self, call: Call, table: str) -> None:
        self._call = call
        self._table = table

    async def register(self, tenant: str, registered: Registered) -> tuple[Registered, bool]:
        """See `Catalog.register`. The version first, then what is current: broken off between, a repeat finishes it."""
        stored, new = registered, True
        item = _to_item(tenant, f"v#{registered.name}#{registered.version}", registered)
        if (item_bytes := size(item)) > MAX_ITEM_BYTES:
            raise LimitExceeded("dynamodb.item_bytes", f"the document is {item_bytes} bytes, at most {MAX_ITEM_BYTES}")
        try:
            await self._put(item, f"attribute_not_exists({PK})")
        except Conflict as conflict:
            stored, new = _from_item(conflict.current), False
        with suppress(Conflict):  # it is the current version already: that is what was wanted
            await self._put(
                _to_item(tenant, f"c#{registered.name}", stored),
                f"attribute_not_exists({PK}) OR v <> :v",
                ExpressionAttributeValues={":v": {"S": stored.version}},
            )
        return stored, new

    async def current(self, tenant: str, name: str) -> Registered | None:
        """See `Catalog.current`."""
        return await self._get(tenant, f"c#{name}")

    async def version(self, tenant: str, name: str, version: str) -> Registered | None:
        """See `Catalog.version`."""
        return await self._get(tenant, f"v#{name}#{version}")

    async def versions(self, tenant: str, name: str) -> Sequence[tuple[str, datetime]]:
        """See `Catalog.versions`."""
        items = await self._query(
            f"{PK} = :p AND begins_with({SK}, :s)",
            {":p": {"S": _partition(tenant)}, ":s": {"S": f"v#{name}#"}},
            ProjectionExpression="v, t",
        )
        found = [(str(item["v"]["S"]), from_ms(int(item["t"]["N"]))) for item in items]
        return sorted(found, key=lambda pair: (pair[1], pair[0]), reverse=True)

    async def names(self, tenant: str, *, limit: int, after: str | None = None) -> Sequence[Listed]:
        """See `Catalog.names`."""
        items = await self._query(
            f"{PK} = :p AND {SK} BETWEEN :a AND :z",
            {
                ":p": {"S": _partition(tenant)},
                ":a": {"S": "c#" if after is None else f"c#{after}{_BEFORE_NAMES}"},
                ":z": {"S": f"c{_AFTER_HASH}"},
            },
            limit=limit,
            ProjectionExpression=f"{PK}, {SK}, v, t",
        )
        return [_listed(item) for item in items]

    async def _put(self, item: Item, condition: str, **more: Any) -> None:
        await self._call(
            Client.DYNAMODB_ONCE,
            "put_item",
            TableName=self._table,
            Item=item,
            ConditionExpression=condition,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **more,
        )

    async def _get(self, tenant: str, sort: str) -> Registered | None:
        response = await self._call(
            Client.DYNAMODB,
            "get_item",
            TableName=self._table,
            Key={PK: {"S": _partition(tenant)}, SK: {"S": sort}},
            ConsistentRead=True,
        )
        return _from_item(response["Item"]) if "Item" in response else None

    async def _query(self, expression: str, values: Item, *, limit: int | None = None, **more: Any) -> list[Item]:
        return await items(
            self._call,
            limit=limit,
            TableName=self._table,
            KeyConditionExpression=expression,
            ExpressionAttributeValues=values,
            ConsistentRead=True,
            **more,
        )


def _partition(tenant: str) -> str:
    return f"{checked_tenant(tenant)}#w"


def _to_item(tenant: str, sort: str, registered: Registered) -> Item:
    return {
        PK: {"S": _partition(tenant)},
        SK: {"S": sort},
        "w": {"S": registered.name},
        "v": {"S": registered.version},
        "t": {"N": str(to_ms(registered.created_at))},
        "d": {"B": zlib.compress(dump(registered.document))},
    }


def _listed(item: Mapping[str, Any]) -> Listed:
    """A workflow as a list shows it: by its key, whatever else its item says."""
    version, created_at = item.get("v", {}).get("S", ""), item.get("t", {}).get("N", "0")
    return Listed(
        name=item[SK]["S"].removeprefix("c#"),
        version=str(version),
        created_at=from_ms(int(created_at) if created_at.isdecimal() else 0),
    )


@reads_items
def _from_item(item: Mapping[str, Any]) -> Registered:
    return Registered(
        name=item["w"]["S"],
        version=item["v"]["S"],
        document=parse(zlib.decompress(item["d"]["B"])),
        created_at=from_ms(int(item["t"]["N"])),
    )
