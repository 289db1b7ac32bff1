"""A class's lanes as a worker process takes from them: best first, none starved, none waited for alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from functions.engine.errors import InfrastructureError
from functions.engine.lanes import order
from functions.engine.message import QueueName, Received
from functions.engine.ports import WorkQueue
from functions.runtime.telemetry import logger

Poll = asyncio.Task[Sequence[Received]]
_Look = Callable[[QueueName, int], Awaitable[Sequence[Received]]]


class Lanes:
    """Receives from several queues as if they were one, in the order of `functions.engine.lanes`.

    While the best queue has messages, a receive is one call. When all are empty each is waited at for `wait_seconds`,
    so that a message is taken at once wherever it arrives; a wait goes on beside later receives, and what it brings
    while nobody has room for it is shown to others at once. Messages stay hidden for `visibility_seconds`.
    """

    def __init__(
        self, queue: WorkQueue, lanes: Sequence[QueueName], *, visibility_seconds: int, wait_seconds: int
    ) -> None:
        self._queue = queue
        self._lanes = lanes
        self._visibility_seconds = visibility_seconds
        self._wait_seconds = wait_seconds
        self._polls: dict[QueueName, Poll] = {}
        self._going_back: set[asyncio.Task[None]] = set()
        self._attended = False
        self._turn = 0

    async def receive(self, limit: int) -> Sequence[Received]:
        """Up to `limit` messages of one lane; none when there were none for some time.

        Raises an `InfrastructureError` when a lane can't be asked and the others have nothing.
        """
        if len(self._lanes) == 1:
            return await self._ask(self._lanes[0], limit, self._wait_seconds)
        self._attended = True
        lanes = [self._lanes[position] for position in order(len(self._lanes), self._turn)]
        self._turn += 1
        messages, lost = await self._first(lanes, limit, self._look)
        if messages:
            return messages
        if lost is not None:
            raise lost
        for lane in lanes:
            if lane not in self._polls:
                self._polls[lane] = self._poll(lane, max(1, limit // len(lanes)))
        await asyncio.wait(self._polls.values(), return_when=asyncio.FIRST_COMPLETED)
        messages, lost = await self._first(lanes, limit, self._brought)
        if lost is not None and not messages:
            raise lost
        return messages

    def leave(self) -> None:
        """Nobody receives until further notice."""
        self._attended = False
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
        return await self._queue.receive(
            lane, limit=limit, wait_seconds=wait_seconds, visibility_seconds=self._visibility_seconds
        )

    def _poll(self, lane: QueueName, limit: int) -> Poll:
        poll = asyncio.create_task(self._ask(lane, limit, self._wait_seconds))

        def ended(poll: Poll) -> None:
            if not self._attended and self._polls.get(lane) is poll:
                self._give_back(lane, poll)

        poll.add_done_callback(ended)
        return poll

    async def _first(
        self, lanes: Sequence[QueueName], limit: int, look: _Look
    ) -> tuple[Sequence[Received], InfrastructureError | None]:
        """What the first of the lanes that has something gives: one that can't be asked keeps no other waiting."""
        lost: InfrastructureError | None = None
        for lane in lanes:
            try:
                messages = await look(lane, limit)
            except InfrastructureError as error:
                lost = error
                logger().warning("a lane could not be asked", extra={"lane": lane.role, "error": repr(error)})
            else:
                if messages:
                    return messages, lost
        return (), lost

    async def _look(self, lane: QueueName, limit: int) -> Sequence[Received]:
        poll = self._polls.get(lane)
        if poll is None:
            return await self._ask(lane, limit, 0)
        # While somebody waits there, it is empty.
        return await self._taken(lane, limit) if poll.done() else ()

    async def _brought(self, lane: QueueName, limit: int) -> Sequence[Received]:
        """What a wait that has just ended has brought; where it is nothing, the next receive need not ask again."""
        poll = self._polls.get(lane)
        if poll is None or not poll.done():
            return ()
        if not poll.cancelled() and poll.exception() is None and not poll.result():
            return ()
        return await self._taken(lane, limit)

    async def _taken(self, lane: QueueName, limit: int) -> Sequence[Received]:
        """What a wait that is over has brought; raises what it met."""
        messages = self._polls.pop(lane).result()
        if len(messages) > limit:
            await self._show(messages[limit:])
        return messages[:limit]

    def _give_back(self, lane: QueueName, poll: Poll) -> None:
        del self._polls[lane]
        if poll.cancelled():
            return
        if isinstance(error := poll.exception(), InfrastructureError):
            logger().warning("a lane could not be waited at", extra={"lane": lane.role, "error": repr(error)})
        elif messages := poll.result():
            task = asyncio.create_task(self._show(messages))
            self._going_back.add(task)
            task.add_done_callback(self._going_back.discard)

    async def _show(self, messages: Sequence[Received]) -> None:
        """Others need not wait for what nobody here has room for; where that fails, they wait for its visibility."""
        try:
            await self._queue.hide(messages, seconds=0)
        except InfrastructureError as error:
            logger().warning("messages were not given back", extra={"error": repr(error)})
