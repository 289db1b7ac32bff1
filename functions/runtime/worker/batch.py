"""One invocation of the worker Lambda: a batch of messages worked on at once, each to its own end (R5)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from functions.engine.errors import InfrastructureError
from functions.engine.message import Received
from functions.runtime.telemetry import logger
from functions.runtime.wiring import Services
from functions.runtime.worker.keeper import Keeper
from functions.runtime.worker.runner import Back, Disposition, Done, Runner

LAST_SECONDS = 3.0
"""What is still going on this long before the invocation ends is broken off: its lease has to speak for it."""


async def work(
    services: Services,
    runner: Runner,
    messages: Sequence[Received],
    *,
    seconds_left: float,
    spent: Callable[[], bool],
) -> Sequence[str]:
    """Work on every message; returns the ids of those to be delivered again.

    Messages that are done with are deleted at once while others go on; at the end the mapping
    deletes what is not returned, unless the process is `spent` and must end without an answer.
    """
    until = asyncio.get_running_loop().time() + seconds_left - LAST_SECONDS
    margin = services.settings.hand_over_margin_seconds
    horizon = services.clock.now() + timedelta(seconds=seconds_left - margin)
    again: list[str] = []
    async with Keeper(services, messages) as keeper:
        tasks = {asyncio.create_task(runner.handle(m, horizon=horizon)): m for m in messages}
        pending = set(tasks)
        while pending:
            left = until - asyncio.get_running_loop().time()
            finished, pending = await asyncio.wait(pending, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            if not finished:
                again += await _break_off(tasks, pending)
                break
            keeper.release(tasks[task] for task in finished)
            back = await settle(
                services, [(tasks[t], disposition(t, tasks[t])) for t in finished], delete=bool(pending) or spent()
            )
            again += [message.message_id for message in back]
    return again


def disposition(task: asyncio.Task[Disposition], message: Received) -> Disposition:
    """What a finished task says of its message; a bug in one message's handling is that message's alone."""
    error = asyncio.CancelledError("cancelled from within") if task.cancelled() else task.exception()
    if error is None:
        return task.result()
    logger().error("a message could not be handled", exc_info=error, extra={"message_id": message.message_id})
    return Back(seconds=60)


async def settle(
    services: Services, ended: Iterable[tuple[Received, Disposition]], *, delete: bool
) -> Sequence[Received]:
    """Delete what is done with (where `delete`), hide what goes back; returns the latter.

    Neither call is worth failing for: an undeleted message is looked at once more, an unhidden one later.
    """
    ended = list(ended)
    done = [message for message, what in ended if isinstance(what, Done)]
    back = [(message, what.seconds) for message, what in ended if isinstance(what, Back)]
    try:
        if delete and done:
            await services.queue.delete(done)
        for message, seconds in back:
            await services.queue.hide([message], seconds=math.ceil(seconds))
    except InfrastructureError as error:
        logger().warning("messages were not settled", extra={"error": repr(error)})
    return [message for message, _ in back]


async def _break_off(
    tasks: Mapping[asyncio.Task[Disposition], Received], pending: Collection[asyncio.Task[Disposition]]
) -> Sequence[str]:
    for task in pending:
        task.cancel()
    await asyncio.wait(pending, timeout=LAST_SECONDS / 2)
    logger().error("the invocation ran out of time", extra={"messages": len(pending)})
    return [tasks[task].message_id for task in pending]
