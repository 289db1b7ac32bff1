"""Queues in a SQLite file that do what SQS's fair queues do: delays, visibility, stale receipts, dead letters, turns.

A queue's messages are taken from the tenant that has the fewest of them under way, and of that tenant the one that has
been visible for longest.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from fanfold.adapters.message_codec import decode, encode
from fanfold.adapters.packing import to_ms
from fanfold.adapters.sqlite.database import Database
from fanfold.engine.errors import InfrastructureError, LimitExceeded
from fanfold.engine.ports import Clock, NotSent, Outgoing, QueueDepth
from fanfold.engine.record.messages import DEAD, Message, QueueName, Received

MAX_DELAY_SECONDS: Final = 900
MAX_VISIBILITY_SECONDS: Final = 43_200
MAX_WAIT_SECONDS: Final = 20
MAX_RECEIVE: Final = 10
MAX_BODY_BYTES: Final = 1_048_576
"""SQS's own limits: what runs here runs there."""

_LEAST_SECONDS: Final = 0.001
"""The shortest wait of a poll."""


class SqliteQueue:
    """A `WorkQueue` for any number of queues. A message received `max_receives` times goes to its class's dead queue.

    A poll ends at once when this process sends; `look_seconds` is how often it looks for what other processes sent
    (None: there are none).
    """

    def __init__(
        self, database: Database, clock: Clock, *, max_receives: int = 10, look_seconds: float | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._max_receives = max_receives
        self._look_seconds = look_seconds
        self._changed: dict[QueueName, asyncio.Event] = {}

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        """See `WorkQueue.send`."""
        await self.send_body(queue, encode(message), tenant=message.tenant, delay_seconds=delay_seconds)

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        """See `WorkQueue.send_many`."""
        return await asyncio.gather(*(self._outcome(queue, outgoing) for outgoing in messages))

    async def _outcome(self, queue: QueueName, outgoing: Outgoing) -> NotSent | None:
        try:
            await self.send(queue, outgoing.message, delay_seconds=outgoing.delay_seconds)
        except (LimitExceeded, InfrastructureError) as error:
            return error
        return None

    async def send_body(self, queue: QueueName, body: str, *, tenant: str = "", delay_seconds: int = 0) -> None:
        """Send a text as it is, as a stranger or another version of the code would."""
        _check("sqs.delay_seconds", delay_seconds, 0, MAX_DELAY_SECONDS)
        _check("sqs.message_bytes", len(body.encode()), 1, MAX_BODY_BYTES)
        row = (str(queue), tenant, self._in_ms(delay_seconds), body)

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO messages (queue, tenant, visible_at, body) VALUES (?, ?, ?, ?)", row)

        await self._database.write(insert)
        self._tell(queue)

    async def receive(
        self, queue: QueueName, *, limit: int, wait_seconds: int, visibility_seconds: int
    ) -> Sequence[Received]:
        """See `WorkQueue.receive`. Giving up a wait loses no message: one taken by then comes back in time."""
        _check("sqs.receive_messages", limit, 1, MAX_RECEIVE)
        _check("sqs.wait_seconds", wait_seconds, 0, MAX_WAIT_SECONDS)
        _check("sqs.visibility_seconds", visibility_seconds, 0, MAX_VISIBILITY_SECONDS)
        until = self._clock.monotonic() + wait_seconds
        while True:
            changed = self._changed.setdefault(queue, asyncio.Event())
            next_at = await self._database.read(lambda connection: _next_at(connection, queue))
            now = self._in_ms(0)
            if next_at is not None and next_at <= now:
                until_ms = self._in_ms(visibility_seconds)
                take = partial(self._take, queue=queue, limit=limit, now=now, until=until_ms)
                taken = await self._database.write(take)
                if taken:
                    return taken
                continue  # what was visible was taken by another, or given up on
            left = until - self._clock.monotonic()
            if left <= 0:
                return []
            seconds = left if next_at is None else min(left, (next_at - now) / 1000)
            if self._look_seconds is not None:
                seconds = min(seconds, self._look_seconds)
            await self._wait(changed, max(seconds, _LEAST_SECONDS))

    async def hide(self, messages: Sequence[Received], *, seconds: int) -> None:
        """See `WorkQueue.hide`."""
        _check("sqs.visibility_seconds", seconds, 0, MAX_VISIBILITY_SECONDS)
        now, until = self._in_ms(0), self._in_ms(seconds)
        rows = [(until, *_held(received), now) for received in messages]
        if not rows:
            return

        def update(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE messages SET visible_at = ? WHERE id = ? AND receipt = ? AND visible_at > ?", rows
            )

        await self._database.write(update)
        for queue in {received.queue for received in messages}:
            self._tell(queue)

    async def delete(self, messages: Sequence[Received]) -> None:
        """See `WorkQueue.delete`."""
        rows = [_held(received) for received in messages]
        if rows:
            await self._database.write(
                lambda connection: connection.executemany("DELETE FROM messages WHERE id = ? AND receipt = ?", rows)
            )

    async def depth(self, queue: QueueName) -> QueueDepth:
        """See `WorkQueue.depth`; here the numbers are exact."""
        now = self._in_ms(0)

        def count(connection: sqlite3.Connection) -> QueueDepth:
            visible, delayed, total = connection.execute(
                "SELECT coalesce(sum(visible_at <= ?), 0), coalesce(sum(visible_at > ? AND receipt IS NULL), 0), "
                "count(*) FROM messages WHERE queue = ?",
                (now, now, str(queue)),
            ).fetchone()
            return QueueDepth(visible=visible, in_flight=total - visible - delayed, delayed=delayed)

        return await self._database.read(count)

    def _take(
        self, connection: sqlite3.Connection, queue: QueueName, limit: int, now: int, until: int
    ) -> list[Received]:
        """Up to `limit` visible messages, hidden and counted; those received too often go to the dead queue."""
        name = str(queue)
        # The first of each tenant, by steps along the index: a backlog of one tenant is not walked through.
        firsts = _tenants(connection, name)
        under_way = Counter(
            dict(
                connection.execute(
                    "SELECT tenant, count(*) FROM messages"
                    " WHERE queue = ? AND visible_at > ? AND receipt IS NOT NULL GROUP BY tenant",
                    (name, now),
                ).fetchall()
            )
            if len(firsts) > 1
            else {}
        )
        taken: list[Received] = []
        waiting = {tenant: _first(connection, name, tenant, now) for tenant in firsts}
        while len(taken) < limit:
            candidates = [(under_way[t], first[1], first[0], t) for t, first in waiting.items() if first is not None]
            if not candidates:
                break
            _, _, message_id, tenant = min(candidates)
            receives, body = connection.execute(
                "SELECT receives + 1, body FROM messages WHERE id = ?", (message_id,)
            ).fetchone()
            if queue.role != DEAD and receives > self._max_receives:
                dead = str(QueueName(class_name=queue.class_name, role=DEAD))
                connection.execute(
                    "UPDATE messages SET queue = ?, receives = 0, receipt = NULL, visible_at = ? WHERE id = ?",
                    (dead, now, message_id),
                )
            else:
                receipt = f"{message_id}.{receives}"
                connection.execute(
                    "UPDATE messages SET receives = ?, receipt = ?, visible_at = ? WHERE id = ?",
                    (receives, receipt, until, message_id),
                )
                under_way[tenant] += 1
                taken.append(_received(queue, message_id, receipt, body, receives))
            waiting[tenant] = _first(connection, name, tenant, now)
        return taken

    def _in_ms(self, seconds: float) -> int:
        return to_ms(self._clock.now() + timedelta(seconds=seconds))

    def _tell(self, queue: QueueName) -> None:
        changed = self._changed.pop(queue, None)
        if changed is not None:
            changed.set()

    async def _wait(self, changed: asyncio.Event, seconds: float) -> None:
        """Return when something was sent or hidden, or after `seconds`, whichever is first."""
        tasks = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _next_at(connection: sqlite3.Connection, queue: QueueName) -> int | None:
    """When the queue's next message is visible, in ms; None where there is none."""
    found = connection.execute("SELECT min(visible_at) FROM messages WHERE queue = ?", (str(queue),)).fetchone()[0]
    return None if found is None else int(found)


def _tenants(connection: sqlite3.Connection, queue: str) -> list[str]:
    rows = connection.execute(
        "WITH RECURSIVE t(name) AS (SELECT min(tenant) FROM messages WHERE queue = ?1 UNION ALL"
        " SELECT (SELECT min(tenant) FROM messages WHERE queue = ?1 AND tenant > name) FROM t WHERE name IS NOT NULL)"
        " SELECT name FROM t WHERE name IS NOT NULL",
        (queue,),
    )
    return [name for (name,) in rows]


def _first(connection: sqlite3.Connection, queue: str, tenant: str, now: int) -> tuple[int, int] | None:
    """The id of a tenant's message that has been visible for longest, and since when."""
    row: tuple[int, int] | None = connection.execute(
        "SELECT id, visible_at FROM messages WHERE queue = ? AND tenant = ? AND visible_at <= ?"
        " ORDER BY visible_at, id LIMIT 1",
        (queue, tenant, now),
    ).fetchone()
    return row


def _held(received: Received) -> tuple[Any, str]:
    return received.message_id, received.receipt


def _received(queue: QueueName, message_id: int, receipt: str, body: str, receives: int) -> Received:
    opened = decode(body)
    return Received(
        queue=queue,
        message_id=str(message_id),
        receipt=receipt,
        body=body,
        message=opened.message,
        newer=opened.newer,
        receives=receives,
    )


def _check(limit: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise LimitExceeded(limit, f"{value} is not within {least}–{most}")
