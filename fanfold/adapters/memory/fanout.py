"""Maps elsewhere, in memory: what the state machine does, as tasks on the loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fanfold.adapters.memory.blobs import MemoryBlobs
from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import Execution, WorkQueue
from fanfold.engine.record.messages import RESUME, QueueName, Wake

TRIES = 2
"""How often the state machine calls the function for a batch before it calls it for each of its items."""

CLOSING_SECONDS = 3.0
"""How long an execution stays open after its last state has rung. In Step Functions that is a moment: longer here, so
that nobody comes to rely on it."""

LAG_SECONDS = 0.5
"""How long an execution that has closed is still told of as going on: DescribeExecution is eventually consistent."""

Work = Callable[[Mapping[str, Any]], Awaitable[object]]
"""Works on one batch, given the event of the fan-out function; raising is the function's failure."""


class NoRoom(Exception):
    """What works on batches has no room for this one: nothing of it was begun."""


class MemoryFanOut:
    """A `FanOut`. `work` is the fan-out function; without one, executions stand still until they are stopped.

    It rings twice for an execution that succeeds: its last state does, and the rule for ends of executions.
    """

    def __init__(self, blobs: MemoryBlobs, queue: WorkQueue, work: Work | None = None) -> None:
        self._blobs = blobs
        self._queue = queue
        self.work = work
        self._executions: dict[str, tuple[Execution, asyncio.Task[None]]] = {}
        self._closed: dict[str, float] = {}
        self._throttled: set[str] = set()

    @property
    def executions(self) -> Mapping[str, bool]:
        """The executions there have been, by name, and whether they go on: for tests to look at."""
        return {name: not task.done() for name, (_, task) in self._executions.items()}

    @property
    def started(self) -> list[Execution]:
        """What was started, in that order: for tests to look at."""
        return [execution for execution, _ in self._executions.values()]

    async def start(self, execution: Execution) -> bool:
        """See `FanOut.start`. Of one that is open Step Functions says each time that it was started."""
        if execution.name in self._executions:
            return self.executions[execution.name]
        task = asyncio.create_task(self._run(execution), name=execution.name)
        self._executions[execution.name] = (execution, task)
        return True

    async def going(self, execution: Execution) -> bool:
        """See `FanOut.going`."""
        closed = self._closed.get(execution.name)
        lags = closed is not None and asyncio.get_running_loop().time() < closed + LAG_SECONDS
        return lags or self.executions.get(execution.name, False)

    async def throttled(self, execution: Execution) -> bool:
        """See `FanOut.throttled`."""
        return execution.name in self._throttled and not await self.going(execution)

    async def stop(self, execution: Execution) -> None:
        """See `FanOut.stop`. Like the service it tells of the end of an execution that is broken off."""
        if execution.name not in self._executions:
            return
        _, task = self._executions[execution.name]
        if task.cancel():
            await asyncio.wait({task})
            await self._ring(execution)

    async def abort(self) -> None:
        """Stop all that goes on, as somebody may from outside."""
        for execution, _ in list(self._executions.values()):
            await self.stop(execution)

    async def _run(self, execution: Execution) -> None:
        if self.work is None:
            await asyncio.Event().wait()
        at_once = asyncio.Semaphore(execution.batches_at_once)
        async with asyncio.TaskGroup() as group:
            for batch in json.loads(self._blobs.read(execution.batches)):
                group.create_task(self._batch(execution, batch, at_once))
        await self._ring(execution)
        await asyncio.sleep(CLOSING_SECONDS)
        self._closed[execution.name] = asyncio.get_running_loop().time()
        await self._ring(execution)

    async def _batch(self, execution: Execution, batch: Mapping[str, int], at_once: asyncio.Semaphore) -> None:
        order = {
            "tenant": execution.tenant,
            "run": execution.run_id,
            "submission": execution.submission,
            "step": execution.step,
            "try": execution.try_number,
        }
        async with at_once:
            for _ in range(TRIES):
                if await self._works(execution, {**order, "batch": batch}):
                    return
            singles = [{"from": index, "to": index + 1} for index in range(batch["from"], batch["to"])]
            await asyncio.gather(*(self._works(execution, {**order, "batch": single}) for single in singles))

    async def _works(self, execution: Execution, event: Mapping[str, Any]) -> bool:
        """Whether it need not be asked for again here: it is done, or was refused."""
        assert self.work is not None, "an execution without a function has no batches under way"
        try:
            await self.work(event)
        except NoRoom:
            self._throttled.add(execution.name)
        except Exception:  # the function's failure, whatever it is; the state machine tolerates all of them
            return False
        return True

    async def _ring(self, execution: Execution) -> None:
        wake = Wake(
            tenant=execution.tenant,
            run_id=execution.run_id,
            submission=execution.submission,
            class_name=execution.class_name,
            map_step=execution.step,
        )
        try:
            await self._queue.send(QueueName(class_name=execution.class_name, role=RESUME), wake)
        except InfrastructureError:
            return  # a ring that is lost; the run is looked at all the same
