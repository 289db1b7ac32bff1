"""The processes of an exploration: workers that die and are replaced, the sweeper, and the function for batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fanfold.adapters.memory import MemoryRunStore
from fanfold.engine.record.messages import Received
from fanfold.engine.record.run import Status
from fanfold.explore.processes import Door, Process
from fanfold.explore.scenario import Scenario
from fanfold.explore.tasks import Allowed, WatchedTasks
from fanfold.service.engine_limits import engine_limits
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.sweeper.wakes import AHEAD, PASS_SECONDS
from fanfold.service.wiring import Services
from fanfold.service.worker.dispositions import Disposition
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.map_batches import MapBatches, Order
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.process import Worker
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache

WORKER: Final = "worker"
"""The name of processes that hold runs."""

BATCH_SECONDS: Final = 300.0
"""The timeout of a distributed map's batch: an EXPRESS child's five minutes."""


class Actors:
    """The processes of one try. `allowed` returns why the record does not allow an attempt that begins."""

    def __init__(self, play: Scenario, services: Services, door: Door, allowed: Allowed) -> None:
        self._play = play
        self._services = services
        self._door = door
        self._allowed = allowed
        self._processes = 0

    async def workers(self) -> None:
        """Run a worker, and another one whenever it has died."""
        class_name = self._play.workflow.class_name
        while True:
            process = self._process(WORKER)
            worker = Worker(
                process.services,
                class_name=class_name,
                lanes=self._play.settings.classes[class_name].lanes,
                concurrency=8,
                isolation=ActorIsolation(self, process),
                attempts=self.attempts(process),
            )
            task = process.begin(worker.run())
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                process.kill()
                raise
            if not process.dead:
                task.result()
                raise AssertionError("a worker ended that nobody had told to")
            # The next process starts without the memory of the dead one.
            self._play.modules.restore()

    async def sweeper(self) -> None:
        """Run a sweeper pass each minute. Its process does not die."""
        process = Process("sweeper", 1, self._services, self._door, counts=False)
        limits = engine_limits(self._play.settings)
        settle = QueueExpiry(process.services, self.workflows(), limits)
        while True:
            await self._services.clock.sleep(PASS_SECONDS)
            if not self._at_rest():
                await sweep(process.services, limits, now=self._services.clock.now(), expire=settle)

    def _at_rest(self) -> bool:
        """Whether a pass would do nothing, because every run waits for a distant time."""
        runs = self._services.runs
        assert isinstance(runs, MemoryRunStore)
        soon = self._services.clock.now() + AHEAD
        return all(
            run.terminal or (run.status is Status.WAITING and run.due_at is not None and run.due_at > soon)
            for run in runs.rows.values()
        )

    async def batch(self, event: Mapping[str, Any]) -> object:
        """The function for batches. If it dies, the call has failed, and its caller repeats it."""
        process = self._process("fanout")
        batches = MapBatches(process.services, self.workflows(), self.attempts(process))
        until = self._services.clock.now() + timedelta(seconds=BATCH_SECONDS)
        task = process.begin(batches.work(Order.from_event(event), until=until))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.dead or task.cancelled():
            self._play.modules.restore()
            raise RuntimeError("the function's process died")
        return task.result()

    def attempts(self, process: Process) -> TaskRunner:
        """The task execution of a process."""
        tasks = WatchedTasks(self._door.course, process, self._allowed)
        return TaskRunner(self._play.settings, self._services.clock, tasks=tasks)

    def _process(self, kind: str) -> Process:
        self._processes += 1
        return Process(kind, self._processes, self._services, self._door)

    def workflows(self) -> WorkflowCache:
        """The empty workflow cache of a new process."""
        return WorkflowCache(self._services.catalog, self._play.settings.classes)

    def runner(self, process: Process) -> MessageHandler:
        """A runner in an existing process."""
        return MessageHandler(process.services, self.workflows(), self.attempts(process), worker=process.name)


class ActorIsolation(Isolation):
    """Runs suspects in the worker's own process, because only the explorer kills processes here."""

    def __init__(self, crew: Actors, process: Process) -> None:
        self._crew = crew
        self._process = process

    async def handle(self, message: Received) -> Disposition:
        """Work on one message."""
        return await self._crew.runner(self._process).handle(message)

    def stop(self) -> None:
        """There are no child processes."""
