"""A class's lanes as a worker process takes from them: best first, none starved, none waited for alone (R5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from fanfold.engine.admission.lanes import order
from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import WorkQueue
from fanfold.engine.record.messages import QueueName, Received
from fanfold.service.telemetry.reporting import logger
from fanfold.service.worker.slots import Slots

Poll = asyncio.Task[Sequence[Received]]

MOST_AT_ONCE = 10
"""SQS gives no more messages at once."""

TURN_SECONDS = 1
"""How long each lane is waited at, in turn, by a process that has fewer slots than lanes."""


class Lanes:
    """Receives from several queues as if they were one, in the order of `fanfold.engine.admission.lanes`.

    While the best queue has messages, a receive is one call. When all are empty each is waited at for `wait_seconds`,
    so that a message is taken at once wherever it arrives; a wait goes on beside later receives, and holds one slot.
    So nothing is received that nobody has room for: each receipt counts (R7). Messages stay hidden for
    `visibility_seconds`.
    """

    def __init__(
        self,
        queue: WorkQueue,
        lanes: Sequence[QueueName],
        slots: Slots,
        *,
        visibility_seconds: int,
        wait_seconds: int,
    ) -> None:
        self._queue = queue
        self._lanes = lanes
        self._slots = slots
        self._visibility_seconds = visibility_seconds
        self._wait_seconds = wait_seconds
        self._polls: dict[QueueName, Poll] = {}
        self._going_back: set[asyncio.Task[None]] = set()
        self._left = False
        self._empty: set[QueueName] = set()
        self._turn = 0
        self._waits = 0
        self._looked_at = -1.0 * len(lanes)

    async def receive(self) -> Sequence[Received]:
        """Messages of one lane, each of which has a slot; none when there were none, or no room, for some time.

        Raises an `InfrastructureError` when a lane can't be asked and the others have nothing.
        """
        if not self._polls:
            await self._slots.some()
        if len(self._lanes) == 1:
            return await self._ask(self._lanes[0], MOST_AT_ONCE, self._wait_seconds)
        lanes = [self._lanes[position] for position in order(len(self._lanes), self._turn)]
        self._turn += 1
        messages, lost = self._brought(lanes)
        if not messages and self._slots.free:
            messages, again = await self._look(lanes)
            lost = lost or again
        if messages:
            self._looked_at, self._empty = -1.0 * len(lanes), set()
            return messages
        if lost is not None:
            raise lost
        self._wait_at_all()
        return await self._first(lanes)

    def leave(self) -> None:
        """Nobody receives any more."""
        self._left = True
        for lane, poll in list(self._polls.items()):
            if poll.done():
                self._give_back(lane, poll)

    async def close(self) -> None:
        """End the waits, and show others what they brought."""
        self.leave()
        polls = list(self._polls.values())
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)  # cancelled, or told when it was given back
        while self._going_back:
            await asyncio.wait(set(self._going_back))

    async def _ask(self, lane: QueueName, limit: int, wait_seconds: int) -> Sequence[Received]:
        """Up to `limit` messages, as far as there are slots."""
        taken = self._slots.take(limit)
        used = 0
        try:
            messages = await self._queue.receive(
                lane, limit=taken, wait_seconds=wait_seconds, visibility_seconds=self._visibility_seconds
            )
            used = len(messages)
            return messages
        finally:
            self._slots.give(taken - used)

    async def _look(self, lanes: Sequence[QueueName]) -> tuple[Sequence[Received], InfrastructureError | None]:
        """What the first of the lanes that has something gives: one that can't be asked keeps no other waiting."""
        now, lost = asyncio.get_running_loop().time(), None
        if now < self._looked_at + len(lanes) * TURN_SECONDS and len(self._polls) + self._slots.free < len(lanes):
            return (), None  # they were all empty, and each is waited at in its turn
        waited_at, self._empty = {*self._polls, *self._empty}, set()
        for lane in lanes:
            if lane in waited_at:
                continue  # while somebody waits there, it is empty
            try:
                messages = await self._ask(lane, MOST_AT_ONCE, 0)
            except InfrastructureError as error:
                lost = error
                logger().warning("a lane could not be asked", extra={"lane": lane.role, "error": repr(error)})
            else:
                if messages:
                    return messages, lost
        self._looked_at = now
        return (), lost

    def _wait_at_all(self) -> None:
        """Have a wait at each lane, or at as many as there are slots for: then briefly, in turn."""
        if self._left:
            return
        start = self._waits % len(self._lanes)
        without = [lane for lane in (*self._lanes[start:], *self._lanes[:start]) if lane not in self._polls]
        enough = self._slots.free >= len(without)
        for lane in without[: self._slots.free]:
            self._polls[lane] = self._poll(lane, self._wait_seconds if enough else TURN_SECONDS)
            self._waits = self._lanes.index(lane) + 1

    def _poll(self, lane: QueueName, wait_seconds: int) -> Poll:
        poll = asyncio.create_task(self._ask(lane, 1, wait_seconds))

        def ended(poll: Poll) -> None:
            if self._left and self._polls.get(lane) is poll:
                self._give_back(lane, poll)

        poll.add_done_callback(ended)
        return poll

    async def _first(self, lanes: Sequence[QueueName]) -> Sequence[Received]:
        """What the first wait that ends brings, unless a slot is free before in which one more lane is waited at."""
        waits: set[asyncio.Task[Any]] = {*self._polls.values()}
        room = asyncio.create_task(self._slots.some())
        if len(self._polls) < len(lanes):
            waits.add(room)
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            room.cancel()
        messages, lost = self._brought(lanes)
        if lost is not None and not messages:
            raise lost
        return messages

    def _brought(self, lanes: Iterable[QueueName]) -> tuple[Sequence[Received], InfrastructureError | None]:
        """What the waits that have ended have brought, of the best lane that has something; and what one met."""
        lost: InfrastructureError | None = None
        for lane in lanes:
            poll = self._polls.get(lane)
            if poll is None or not poll.done():
                continue
            del self._polls[lane]
            try:
                if messages := poll.result():
                    return messages, lost
                self._empty.add(lane)
            except InfrastructureError as error:
                lost = error
                logger().warning("a lane could not be waited at", extra={"lane": lane.role, "error": repr(error)})
        return (), lost

    def _give_back(self, lane: QueueName, poll: Poll) -> None:
        del self._polls[lane]
        if poll.cancelled():
            return
        if isinstance(error := poll.exception(), InfrastructureError):
            logger().warning("a lane could not be waited at", extra={"lane": lane.role, "error": repr(error)})
        elif messages := poll.result():
            self._slots.give(len(messages))
            task = asyncio.create_task(self._show(messages))
            self._going_back.add(task)
            task.add_done_callback(self._going_back.discard)

    async def _show(self, messages: Sequence[Received]) -> None:
        """Others need not wait for what came to one that leaves; where that fails, they wait for its visibility."""
        try:
            await self._queue.hide(messages, seconds=0)
        except InfrastructureError as error:
            logger().warning("messages were not given back", extra={"error": repr(error)})
