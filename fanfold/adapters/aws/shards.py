"""How many shards the indexes were ever spread over: what was written by other settings is found all the same.

One item, `#shards`, with `i` (the list index) and `d` (the due index). It only grows; without it there was one of each.
"""

from __future__ import annotations

from typing import Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import PK, SK, Item
from fanfold.engine.errors import Conflict

_KEY: Final[Item] = {PK: {"S": "#shards"}, SK: {"S": "0"}}


class Shards:
    """The shards a process writes to, and those it has to look into.

    `index` and `due` are what its settings say: rows are written to so many. `most` asks the table once.
    """

    def __init__(self, call: Call, table: str, *, index: int, due: int) -> None:
        self._call = call
        self._table = table
        self.index = index
        self.due = due
        self._most: tuple[int, int] | None = None

    async def most(self) -> tuple[int, int]:
        """The most shards that the list index and the due index ever had, this process's own among them."""
        while self._most is None:
            known = await self._read()
            most = (max(known[0], self.index), max(known[1], self.due))
            if most == known or await self._raise(known, most):
                self._most = most
        return self._most

    async def _read(self) -> tuple[int, int]:
        answer = await self._call(Client.DYNAMODB, "get_item", TableName=self._table, Key=_KEY, ConsistentRead=True)
        item = answer.get("Item", {})
        return int(item.get("i", {"N": "1"})["N"]), int(item.get("d", {"N": "1"})["N"])

    async def _raise(self, known: tuple[int, int], most: tuple[int, int]) -> bool:
        """Whether the item now says so; another process may have changed it meanwhile."""
        absent = "attribute_not_exists(i) OR " if known == (1, 1) else ""
        try:
            await self._call(
                Client.DYNAMODB,
                "update_item",
                TableName=self._table,
                Key=_KEY,
                UpdateExpression="SET i = :i, d = :d",
                ConditionExpression=f"{absent}(i = :ki AND d = :kd)",
                ExpressionAttributeValues={
                    ":i": {"N": str(most[0])},
                    ":d": {"N": str(most[1])},
                    ":ki": {"N": str(known[0])},
                    ":kd": {"N": str(known[1])},
                },
            )
        except Conflict:
            return False
        return True
