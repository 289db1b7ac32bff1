"""Secrets in the table (`#secrets` / name, attribute `v` (S))."""

from __future__ import annotations

from typing import Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import PK, SK, Item
from fanfold.engine.errors import Conflict

_SECRETS: Final = "#secrets"


class DynamoSecrets:
    """A `Secrets` in the table, encrypted as everything in it. `call` carries out the calls (the `Aws` object)."""

    def __init__(self, call: Call, table: str) -> None:
        self._call = call
        self._table = table

    async def shared(self, name: str, *, drawn: str) -> str:
        """See `Secrets.shared`. One read; the very first caller of a deployment also writes."""
        key: Item = {PK: {"S": _SECRETS}, SK: {"S": name}}
        response = await self._call(Client.DYNAMODB, "get_item", TableName=self._table, Key=key, ConsistentRead=True)
        if "Item" in response:
            return str(response["Item"]["v"]["S"])
        try:
            await self._call(
                Client.DYNAMODB_ONCE,
                "put_item",
                TableName=self._table,
                Item={**key, "v": {"S": drawn}},
                ConditionExpression=f"attribute_not_exists({PK})",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except Conflict as conflict:
            return str(conflict.current["v"]["S"])  # another was faster, and its secret counts
        return drawn
