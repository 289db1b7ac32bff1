"""Maps elsewhere: a state machine that goes on by itself, and the functions it calls, which can die, freeze, fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fanfold.adapters.memory import MemoryFanOut, MemoryMapRecords
from fanfold.engine.errors import InfrastructureError
from fanfold.engine.language.maps import MapRecord
from fanfold.engine.ports import Execution, MapKey
from fanfold.engine.record.messages import Message, QueueName
from fanfold.service.worker.map_batches import BatchEnd, MapBatches, Order
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache
from tests.simulation.nodes import Node
from tests.simulation.perils import Bug
from tests.simulation.stores import Blobs
from tests.support.virtual import PROCESS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

BATCH_SECONDS = 180
"""The fan-out function's timeout: room for two attempts at an item, and for the record of it."""

KEPT_WARM = 0.7


class MapRecords(MemoryMapRecords):
    """What batches leave behind, with the audit looking on."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    async def put(self, key: MapKey, record: MapRecord, **given: Any) -> None:
        known = await self.has(key, try_number=record.try_number, first=record.first)
        before = await self.read(key)
        await super().put(key, record, **given)
        after = await self.read(key)
        audit = self._simulation.audit
        kept = all(one in after for one in before) and len(after) == len(before) + (not known)
        audit.hold(kept, "a batch is recorded once in a try", f"{key.run_id}/{key.step}")
        if not known:
            audit.maps.recorded(key, record)


class Rings:
    """The queue as the state machine reaches it: some of its messages are lost, some come twice."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        """See `WorkQueue.send`."""
        simulation = self._simulation
        lost = simulation.fate.strikes("machine.ring.lost", 0.2, at=simulation.loop.time())
        twice = simulation.fate.strikes("machine.ring.twice", 0.1, at=simulation.loop.time())
        for _ in range(0 if lost is not None else 1 if twice is None else 2):
            simulation.audit.maps.rings += 1
            await simulation.queue.send(queue, message, delay_seconds=delay_seconds)


class StateMachine(MemoryFanOut):
    """Executions that belong to no process, and outlive the one that started them."""

    def __init__(self, simulation: Simulation, blobs: Blobs) -> None:
        super().__init__(blobs, Rings(simulation), self.call)  # type: ignore[arg-type]  # it only sends
        self._simulation = simulation
        self._warm: list[tuple[Node, MapBatches]] = []
        self._random = simulation.fate.rng("machine")

    async def start(self, execution: Execution) -> bool:
        """See `FanOut.start`."""
        if execution.name not in self._executions:
            self._simulation.note("machine", "starts", execution.name)
        token = PROCESS.set("")
        try:
            return await super().start(execution)
        finally:
            PROCESS.reset(token)

    async def abort(self) -> None:
        """Somebody ends one of the executions."""
        going = [execution for execution, task in self._executions.values() if not task.done()]
        if going:
            chosen = going[int(self._random.random() * len(going))]
            self._simulation.note("operator", "aborts", chosen.name)
            await self.stop(chosen)

    async def call(self, event: Mapping[str, Any]) -> BatchEnd:
        """Calls the function for a batch, now and then a second time beside the first."""
        simulation = self._simulation
        if simulation.fate.strikes("machine.twice", 0.1, at=simulation.loop.time()) is not None:
            simulation.go(self._whatever(event))
        return await self._invoke(event)

    async def _whatever(self, event: Mapping[str, Any]) -> None:
        await asyncio.gather(self._invoke(event), return_exceptions=True)

    async def _invoke(self, event: Mapping[str, Any]) -> BatchEnd:
        """One invocation, as `BatchInvocations.work` makes it. Raises when the function fails."""
        node, batches = self._sandbox(warm=self._random.random() < KEPT_WARM if self._warm else False)
        until = node.services.clock.now() + timedelta(seconds=BATCH_SECONDS)
        task = node.begin(batches.work(Order.from_event(event), until=until))
        try:
            await asyncio.wait({task}, timeout=BATCH_SECONDS)
        finally:
            # An execution that is broken off leaves the function to its end; Lambda ends it at its timeout.
            if not task.done():
                self._simulation.loop.call_later(BATCH_SECONDS, _end, node, task, context=self._simulation.context)
        if not task.done():
            node.kill("the function's timeout")
            await asyncio.wait({task})
        if node.dead or task.cancelled():
            raise RuntimeError("the function died")
        if (error := task.exception()) is not None:
            if not isinstance(error, InfrastructureError | Bug):
                self._simulation.audit.fail("a batch fails with the services, or by its own bug", repr(error))
            raise error
        self._simulation.audit.hold(not node.tasks, "nothing outlives an invocation", node.tasks)
        self._warm.append((node, batches))
        return task.result()

    def _sandbox(self, *, warm: bool) -> tuple[Node, MapBatches]:
        self._warm = [box for box in self._warm if self._simulation.rollout.keeps(box[0])]
        if warm and self._warm:
            return self._warm.pop()
        node = self._simulation.node("batch")
        workflows = WorkflowCache(node.services.catalog, node.settings.classes)
        return node, MapBatches(node.services, workflows, TaskRunner(node.settings, node.services.clock))


def _end(node: Node, task: asyncio.Task[BatchEnd]) -> None:
    if not task.done():
        node.kill("the function's timeout")
