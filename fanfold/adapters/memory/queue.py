"""Queues in memory that do what SQS's do: delays, visibility, stale receipts, dead letters."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from fanfold.adapters.message_codec import decode, encode
from fanfold.engine.errors import LimitExceeded
from fanfold.engine.ports import Clock, NotSent, Outgoing, QueueDepth
from fanfold.engine.record.messages import DEAD, Message, QueueName, Received

MAX_DELAY_SECONDS = 900
MAX_VISIBILITY_SECONDS = 43_200
MAX_WAIT_SECONDS = 20
MAX_RECEIVE = 10
MAX_BODY_BYTES = 1_048_576
"""SQS's own limits, checked because a store that accepts more would hide the bug."""

GRAIN_SECONDS = 0.001
"""The shortest wait of a poll."""


@dataclass(slots=True, kw_only=True)
class _Stored:
    """A message in a queue; hidden while `visible_at` is set. `receipt` is that of its latest delivery."""

    message_id: str
    body: str
    receives: int = 0
    receipt: str | None = None
    visible_at: float | None = None


@dataclass(slots=True)
class _Queue:
    """One queue: what is visible, in order, and when the rest will be."""

    messages: dict[str, _Stored] = field(default_factory=dict)
    visible: OrderedDict[str, _Stored] = field(default_factory=OrderedDict)
    hidden: list[tuple[float, int, _Stored]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryQueue:
    """A `WorkQueue` for any number of queues, made when first named, on the time of the given clock.

    A message received `max_receives` times goes to its class's dead queue at the next receive.
    """

    def __init__(self, clock: Clock, *, max_receives: int = 10) -> None:
        self._clock = clock
        self._max_receives = max_receives
        self._queues: dict[QueueName, _Queue] = {}
        self._numbers = itertools.count(1)

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        """See `WorkQueue.send`."""
        await self.send_body(queue, encode(message), delay_seconds=delay_seconds)

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        """See `WorkQueue.send_many`."""
        return [await self._outcome(queue, outgoing) for outgoing in messages]

    async def _outcome(self, queue: QueueName, outgoing: Outgoing) -> NotSent | None:
        try:
            await self.send(queue, outgoing.message, delay_seconds=outgoing.delay_seconds)
        except LimitExceeded as error:
            return error
        return None

    async def send_body(self, queue: QueueName, body: str, *, delay_seconds: int = 0) -> None:
        """Send a text as it is, as a stranger or another version of the code would."""
        _check("sqs.delay_seconds", delay_seconds, 0, MAX_DELAY_SECONDS)
        _check("sqs.message_bytes", len(body.encode()), 1, MAX_BODY_BYTES)
        self._insert(queue, _Stored(message_id=f"m{next(self._numbers)}", body=body), delay_seconds)

    async def receive(
        self, queue: QueueName, *, limit: int, wait_seconds: int, visibility_seconds: int
    ) -> Sequence[Received]:
        """See `WorkQueue.receive`. Giving up a wait loses no message."""
        _check("sqs.receive_messages", limit, 1, MAX_RECEIVE)
        _check("sqs.wait_seconds", wait_seconds, 0, MAX_WAIT_SECONDS)
        _check("sqs.visibility_seconds", visibility_seconds, 0, MAX_VISIBILITY_SECONDS)
        until = self._clock.monotonic() + wait_seconds
        while True:
            taken = self._take(queue, limit, visibility_seconds)
            now = self._clock.monotonic()
            if taken or now >= until:
                return taken
            hidden = self._queue(queue).hidden
            seconds = min(until, hidden[0][0]) - now if hidden else until - now
            # Less than a clock's grain would never pass on a clock that only moves when everybody waits.
            await self._change(queue, max(seconds, GRAIN_SECONDS))

    async def hide(self, messages: Sequence[Received], *, seconds: int) -> None:
        """See `WorkQueue.hide`."""
        _check("sqs.visibility_seconds", seconds, 0, MAX_VISIBILITY_SECONDS)
        for received in messages:
            stored = self._held(received)
            if stored is not None and stored.visible_at is not None:
                self._hide(self._queue(received.queue), stored, seconds)

    async def delete(self, messages: Sequence[Received]) -> None:
        """See `WorkQueue.delete`."""
        for received in messages:
            if self._held(received) is not None:
                self._drop(self._queue(received.queue), received.message_id)

    async def depth(self, queue: QueueName) -> QueueDepth:
        """See `WorkQueue.depth`; here the numbers are exact."""
        it = self._queue(queue)
        self._show_what_is_due(it)
        delayed = sum(1 for m in it.messages.values() if m.visible_at is not None and m.receipt is None)
        hidden = len(it.messages) - len(it.visible)
        return QueueDepth(visible=len(it.visible), in_flight=hidden - delayed, delayed=delayed)

    def _queue(self, name: QueueName) -> _Queue:
        return self._queues.setdefault(name, _Queue())

    def _insert(self, queue: QueueName, stored: _Stored, delay_seconds: float) -> None:
        it = self._queue(queue)
        it.messages[stored.message_id] = stored
        self._hide(it, stored, delay_seconds)

    def _hide(self, it: _Queue, stored: _Stored, seconds: float) -> None:
        it.visible.pop(stored.message_id, None)
        stored.visible_at = self._clock.monotonic() + seconds
        heapq.heappush(it.hidden, (stored.visible_at, next(self._numbers), stored))
        changed, it.changed = it.changed, asyncio.Event()
        changed.set()

    def _drop(self, it: _Queue, message_id: str) -> _Stored:
        stored = it.messages.pop(message_id)
        it.visible.pop(message_id, None)
        stored.visible_at = None
        return stored

    def _held(self, received: Received) -> _Stored | None:
        stored = self._queue(received.queue).messages.get(received.message_id)
        if stored is None or stored.receipt != received.receipt:
            return None
        self._show_what_is_due(self._queue(received.queue))
        return stored

    def _show_what_is_due(self, it: _Queue) -> None:
        now = self._clock.monotonic()
        while it.hidden and it.hidden[0][0] <= now:
            at, _, stored = heapq.heappop(it.hidden)
            # An entry is void once its message was deleted or hidden for another time.
            if stored.visible_at == at:
                stored.visible_at = None
                it.visible[stored.message_id] = stored

    def _take(self, queue: QueueName, limit: int, visibility_seconds: int) -> list[Received]:
        it = self._queue(queue)
        self._show_what_is_due(it)
        taken: list[_Stored] = []
        while it.visible and len(taken) < limit:
            _, stored = it.visible.popitem(last=False)
            if queue.role != DEAD and stored.receives >= self._max_receives:
                self._bury(queue, stored)
                continue
            stored.receives += 1
            stored.receipt = f"{stored.message_id}.{stored.receives}"
            taken.append(stored)
        for stored in taken:
            self._hide(it, stored, visibility_seconds)
        return [_received(queue, stored) for stored in taken]

    def _bury(self, queue: QueueName, stored: _Stored) -> None:
        self._drop(self._queue(queue), stored.message_id)
        stored.receives, stored.receipt = 0, None
        self._insert(QueueName(class_name=queue.class_name, role=DEAD), stored, 0)

    async def _change(self, queue: QueueName, seconds: float) -> None:
        """Return when something was sent or hidden, or after `seconds`, whichever is first."""
        tasks = [
            asyncio.ensure_future(self._queue(queue).changed.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _received(queue: QueueName, stored: _Stored) -> Received:
    opened = decode(stored.body)
    return Received(
        queue=queue,
        message_id=stored.message_id,
        receipt=stored.receipt or "",
        body=stored.body,
        message=opened.message,
        newer=opened.newer,
        receives=stored.receives,
    )


def _check(limit: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise LimitExceeded(limit, f"{value} is not within {least}–{most}")
