"""Distributed maps, in memory: what the state machine does, as tasks on the loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from fanfold.adapters.batches import Work, end_of, work_through
from fanfold.adapters.memory.blobs import MemoryBlobs
from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import Execution, WorkQueue

CLOSING_SECONDS = 3.0
"""How long an execution stays open after its last state has sent its wake. In Step Functions that is a moment; here it
is longer, so that no code relies on it."""

LAG_SECONDS = 0.5
"""How long an execution that has closed is still told of as going on: DescribeExecution is eventually consistent."""


class MemoryFanOut:
    """A `FanOut`. `work` is the fan-out function; without one, executions stand still until they are stopped.

    It sends two wakes for an execution that succeeds: from its last state, and from the rule for ends of executions.
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
        batches = json.loads(self._blobs.read(execution.batches))
        if await work_through(execution, batches, self._called):
            self._throttled.add(execution.name)
        await self._ring(execution)
        await asyncio.sleep(CLOSING_SECONDS)
        self._closed[execution.name] = asyncio.get_running_loop().time()
        await self._ring(execution)

    async def _called(self, event: Mapping[str, Any]) -> object:
        assert self.work is not None, "an execution without a function has no batches under way"
        return await self.work(event)

    async def _ring(self, execution: Execution) -> None:
        queue, wake = end_of(execution)
        try:
            await self._queue.send(queue, wake)
        except InfrastructureError:
            return  # a lost wake; the run is polled all the same
