"""The sweeper's state in the table (`#marks` / name, attribute `v` (S) JSON)."""

from __future__ import annotations

from typing import Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import PK, SK, Item
from fanfold.engine.payload import Json, dump, parse

_KEY: Final = "#marks"


class DynamoSweeperState:
    """A `SweeperState` in the table. `call` carries out the calls (the `Aws` object)."""

    def __init__(self, call: Call, table: str) -> None:
        self._call = call
        self._table = table

    async def get(self, name: str) -> Json:
        """See `SweeperState.get`."""
        response = await self._call(
            Client.DYNAMODB, "get_item", TableName=self._table, Key=_key(name), ConsistentRead=True
        )
        return parse(response["Item"]["v"]["S"]) if "Item" in response else None

    async def put(self, name: str, value: Json) -> None:
        """See `SweeperState.put`."""
        item = {**_key(name), "v": {"S": dump(value).decode("ascii")}}
        await self._call(Client.DYNAMODB, "put_item", TableName=self._table, Item=item)


def _key(name: str) -> Item:
    return {PK: {"S": _KEY}, SK: {"S": name}}
