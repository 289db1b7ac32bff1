"""One invocation of the worker Lambda: a batch of messages worked on at once, each to its own end (R5)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.record.messages import Received
from fanfold.service.telemetry.reporting import logger
from fanfold.service.wiring import Services
from fanfold.service.worker.dispositions import Ack, Disposition, Redeliver
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.visibility_extender import VisibilityExtender

LAST_SECONDS = 7.0
"""What is still going on this long before the invocation ends is broken off, and its runs are let go."""
LEFT_SECONDS = 3.0
"""What has not been let go this long before the end, because its record can't be written, is left to its lease."""
TOGETHER_SECONDS = 1.0
"""Messages that are done with within this time of the first are deleted by one call. Whoever dies meanwhile leaves
messages that find nothing due."""


async def work(
    services: Services,
    runner: MessageHandler,
    messages: Sequence[Received],
    *,
    seconds_left: float,
    spent: Callable[[], bool],
) -> Sequence[str]:
    """Work on every message; returns the ids of those to be delivered again.

    Messages that are done with are deleted within a second while others go on; at the end the mapping
    deletes what is not returned, unless the process is `spent` and must end without an answer.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds_left
    until = end - LAST_SECONDS
    margin = services.settings.hand_over_margin_seconds
    stop_before = services.clock.now() + timedelta(seconds=seconds_left - margin)
    again: list[str] = []
    async with VisibilityExtender(services, messages) as keeper:
        tasks = {asyncio.create_task(runner.handle(m, stop_before=stop_before)): m for m in messages}
        pending = set(tasks)
        done: list[Received] = []
        delete_at = math.inf
        while pending:
            wake_at = min(until, delete_at)
            finished, pending = await asyncio.wait(
                pending, timeout=max(0.0, wake_at - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not finished and loop.time() >= until:
                if until < end - LEFT_SECONDS:
                    logger().error("the invocation ran out of time", extra={"messages": len(pending)})
                    runner.break_off()
                    until = end - LEFT_SECONDS
                    continue
                again += await _cancel(tasks, pending)
                break
            keeper.release(tasks[task] for task in finished)
            ended = [(tasks[task], disposition(task, tasks[task])) for task in finished]
            again += [message.message_id for message in await hand_back(services, ended)]
            if new := served(ended):
                done += new
                delete_at = min(delete_at, loop.time() + TOGETHER_SECONDS)
            if pending and loop.time() >= delete_at:
                await delete(services, done)
                done, delete_at = [], math.inf
        if spent():
            await delete(services, done)
    return again


def disposition(task: asyncio.Task[Disposition], message: Received) -> Disposition:
    """What a finished task says of its message; a bug in one message's handling is that message's alone."""
    error = asyncio.CancelledError("cancelled from within") if task.cancelled() else task.exception()
    if error is None:
        return task.result()
    logger().error("a message could not be handled", exc_info=error, extra={"message_id": message.message_id})
    return Redeliver(seconds=60)


def served(ended: Iterable[tuple[Received, Disposition]]) -> Sequence[Received]:
    """The messages that are done with."""
    return [message for message, what in ended if isinstance(what, Ack)]


async def delete(services: Services, done: Sequence[Received]) -> None:
    """Delete messages that are done with. Not worth failing for: one that stays is looked at once more."""
    try:
        if done:
            await services.queue.delete(done)
    except InfrastructureError as error:
        logger().warning("messages were not deleted", extra={"error": repr(error)})
    except Exception:  # a bug here must not cost the other messages of the batch
        logger().exception("messages could not be deleted")


async def hand_back(services: Services, ended: Iterable[tuple[Received, Disposition]]) -> Sequence[Received]:
    """Hide the messages that go back, and return them. Not worth failing for: one that is not hidden comes later."""
    back = [(message, what.seconds) for message, what in ended if isinstance(what, Redeliver)]
    try:
        for message, seconds in back:
            await services.queue.hide([message], seconds=math.ceil(seconds))
    except InfrastructureError as error:
        logger().warning("messages were not hidden", extra={"error": repr(error)})
    except Exception:  # a bug here must not cost the other messages of the batch
        logger().exception("messages could not be hidden")
    return [message for message, _ in back]


async def _cancel(
    tasks: Mapping[asyncio.Task[Disposition], Received], pending: Collection[asyncio.Task[Disposition]]
) -> Sequence[str]:
    for task in pending:
        task.cancel()
    await asyncio.wait(pending, timeout=LEFT_SECONDS / 2)
    logger().error("runs could not be let go; their leases speak for them", extra={"messages": len(pending)})
    return [tasks[task].message_id for task in pending]
