"""Seats of calls that wait, in the table (`#seats#{number}` / `0`).

Attributes of a seat: `o` (S) whose it is, `t` (N) until when in ms, `x` (N) TTL. A partition key for each seat, so that
they do not share one key's thousand writes a second.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import HEAD, PK, SK, Item
from fanfold.adapters.packing import to_ms
from fanfold.engine.errors import Conflict
from fanfold.engine.ports import Seat

TRIES: Final = 6
"""Seats that are tried before a call does without: with nine of ten taken it finds one of the rest every other time."""


class DynamoSeats:
    """A `Seats` in the table. `call` carries out the calls (the `Aws` object); `most` is how many there are.

    A process tries the seat it had last before any other: each comes to have its own, and one write is enough.
    """

    def __init__(self, call: Call, table: str, most: int) -> None:
        self._call = call
        self._table = table
        self._most = most
        self._last: int | None = None

    async def take(self, name: str, *, now: datetime, until: datetime) -> Seat | None:
        """See `Seats.take`. One write; one more for each seat that is another's."""
        for number in islice(self._order(name), TRIES if self._most > 0 else 0):
            seat = Seat(number=number, name=name)
            try:
                # Repeated by the SDK it would find itself in its way.
                await self._call(
                    Client.DYNAMODB_ONCE,
                    "update_item",
                    **self._at(seat),
                    UpdateExpression="SET o = :name, t = :until, x = :ttl",
                    ConditionExpression="attribute_not_exists(t) OR t < :now",
                    ExpressionAttributeValues={
                        ":name": {"S": name},
                        ":until": {"N": str(to_ms(until))},
                        ":ttl": {"N": str(to_ms(until) // 1_000 + 86_400)},
                        ":now": {"N": str(to_ms(now))},
                    },
                )
            except Conflict:
                continue
            self._last = number
            return seat
        return None

    async def leave(self, seat: Seat) -> None:
        """See `Seats.leave`. One write."""
        try:
            await self._call(
                Client.DYNAMODB_ONCE,
                "update_item",
                **self._at(seat),
                UpdateExpression="SET t = :never",
                ConditionExpression="o = :name",
                ExpressionAttributeValues={":name": {"S": seat.name}, ":never": {"N": "0"}},
            )
        except Conflict:
            return  # its time was over, and it is another's by now

    def _order(self, name: str) -> Iterator[int]:
        """A few seats, each once: the last one, then some that the name draws."""
        if self._last is not None:
            yield self._last
        drawn = (zlib.crc32(f"{name} {step}".encode()) % self._most for step in range(4 * TRIES))
        yield from (number for number in dict.fromkeys(drawn) if number != self._last)

    def _at(self, seat: Seat) -> Item:
        return {"TableName": self._table, "Key": {PK: {"S": f"#seats#{seat.number}"}, SK: {"S": HEAD}}}
