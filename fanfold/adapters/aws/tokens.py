"""Tokens in the table, and the tenants they were made for.

A token's item: `h` (B) SHA-256 of the secret, `t` (S) tenant, `c` (S) scopes separated by spaces, `o` (S) owner, and in
ms `a` (N) created, `y` (N) expires, `r` (N) revoked; `l` (S) the best lane and `p` (N) the highest priority it may use,
absent where there is no bound. One that expires has `x` (N), `KEPT_DAYS` later in seconds: then DynamoDB deletes it.
A tenant's item is its keys alone.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.pagination import items
from fanfold.adapters.aws.run_items import PK, SK, TTL, Item, pack, reads_items, unpack
from fanfold.adapters.packing import from_ms, to_ms
from fanfold.engine.errors import Conflict, NotFound, Unreadable
from fanfold.engine.ports import Token
from fanfold.engine.tenant import TENANT

_TOKENS: Final = "#tokens"
_TENANTS: Final = "#tenants"

KEPT_DAYS: Final = 30
"""How long an expired token is still listed, and answered as expired rather than unknown."""


class DynamoTokens:
    """A `Tokens` in the table. `call` carries out the calls (the `Aws` object)."""

    def __init__(self, call: Call, table: str) -> None:
        self._call = call
        self._table = table

    async def put(self, token: Token) -> None:
        """See `Tokens.put`. The tenant first: a token whose tenant nobody sweeps must not come to be."""
        await self._call(Client.DYNAMODB, "put_item", TableName=self._table, Item=_key(_TENANTS, token.tenant))
        try:
            await self._call(
                Client.DYNAMODB_ONCE,
                "put_item",
                TableName=self._table,
                Item=_to_item(token),
                ConditionExpression=f"attribute_not_exists({PK})",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except Conflict as conflict:
            raise Conflict(_from_item(conflict.current)) from conflict

    async def get(self, token_id: str) -> Token | None:
        """See `Tokens.get`."""
        response = await self._call(
            Client.DYNAMODB, "get_item", TableName=self._table, Key=_key(_TOKENS, token_id), ConsistentRead=True
        )
        return _from_item(response["Item"]) if "Item" in response else None

    async def list(self) -> Sequence[Token | Unreadable]:
        """See `Tokens.list`."""
        found: builtins.list[Token | Unreadable] = []
        for item in await self._partition(_TOKENS):
            try:
                found.append(_from_item(item))
            except Unreadable as error:
                found.append(error)
        return found

    async def revoke(self, token_id: str, *, now: datetime) -> Token:
        """See `Tokens.revoke`."""
        try:
            response = await self._call(
                Client.DYNAMODB_ONCE,
                "update_item",
                TableName=self._table,
                Key=_key(_TOKENS, token_id),
                UpdateExpression="SET r = :now",
                ConditionExpression=f"attribute_exists({PK}) AND attribute_not_exists(r)",
                ExpressionAttributeValues={":now": {"N": str(to_ms(now))}},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except Conflict as conflict:
            if not conflict.current:
                raise NotFound(f"there is no token {token_id}") from conflict
            return _from_item(conflict.current)  # revoked before
        return _from_item(response["Attributes"])

    async def tenants(self) -> Collection[str]:
        """See `Tokens.tenants`."""
        names = (str(item[SK]["S"]) for item in await self._partition(_TENANTS))
        return frozenset(name for name in names if TENANT.fullmatch(name))

    async def _partition(self, name: str) -> builtins.list[Item]:
        return await items(
            self._call,
            TableName=self._table,
            KeyConditionExpression=f"{PK} = :p",
            ExpressionAttributeValues={":p": {"S": name}},
            ConsistentRead=True,
        )


def _key(partition: str, sort: str) -> Item:
    return {PK: {"S": partition}, SK: {"S": sort}}


def _to_item(token: Token) -> Item:
    item: Item = {
        **_key(_TOKENS, token.id),
        "h": {"B": pack(token.sha256)},
        "t": {"S": token.tenant},
        "c": {"S": " ".join(sorted(token.scopes))},
        "o": {"S": token.owner},
        "a": {"N": str(to_ms(token.created_at))},
    }
    if token.expires_at is not None:
        item["y"] = {"N": str(to_ms(token.expires_at))}
        item[TTL] = {"N": str(int((token.expires_at + timedelta(days=KEPT_DAYS)).timestamp()))}
    if token.revoked_at is not None:
        item["r"] = {"N": str(to_ms(token.revoked_at))}
    if token.max_lane is not None:
        item["l"] = {"S": token.max_lane}
    if token.max_priority is not None:
        item["p"] = {"N": str(token.max_priority)}
    return item


@reads_items
def _from_item(item: Mapping[str, Any]) -> Token:
    return Token(
        id=item[SK]["S"],
        sha256=unpack(item["h"]["B"]),
        tenant=item["t"]["S"],
        scopes=frozenset(item["c"]["S"].split()),
        owner=item["o"]["S"],
        created_at=from_ms(int(item["a"]["N"])),
        expires_at=from_ms(int(item["y"]["N"])) if "y" in item else None,
        revoked_at=from_ms(int(item["r"]["N"])) if "r" in item else None,
        max_lane=item["l"]["S"] if "l" in item else None,
        max_priority=int(item["p"]["N"]) if "p" in item else None,
    )
