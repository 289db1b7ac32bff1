"""Queries of DynamoDB, page after page: one answer has at most 1 MB of a partition."""

from __future__ import annotations

from typing import Any

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import Item


async def items(call: Call, *, limit: int | None = None, **query: Any) -> list[Item]:
    """All items of a query, or its first `limit`; `query` is what DynamoDB's own call takes."""
    found: list[Item] = []
    while limit is None or len(found) < limit:
        if limit is not None:
            query["Limit"] = limit - len(found)
        response = await call(Client.DYNAMODB, "query", **query)
        found += response["Items"]
        if "LastEvaluatedKey" not in response:
            break
        query["ExclusiveStartKey"] = response["LastEvaluatedKey"]
    return found
