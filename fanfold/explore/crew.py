"""Who works on a run on the stage: workers that die and are followed, the sweeper, the function for wide maps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fanfold.explore.play import Play
from fanfold.explore.processes import Door, Process
from fanfold.explore.tasks import Allowed, WatchedTasks
from functions.adapters.memory import MemoryRunStore
from functions.engine.message import Received
from functions.engine.run import Status
from functions.runtime.sweeper.settle import Settler
from functions.runtime.sweeper.sweep import sweep
from functions.runtime.sweeper.wakes import AHEAD, PASS_SECONDS
from functions.runtime.terms import terms_of
from functions.runtime.wiring import Services
from functions.runtime.worker.attempts import Attempts
from functions.runtime.worker.isolation import Isolation
from functions.runtime.worker.mapbatch import MapBatches, Order
from functions.runtime.worker.process import Worker
from functions.runtime.worker.runner import Disposition, Runner
from functions.runtime.workflows import WorkflowCache

WORKER: Final = "worker"
"""The kind of process that holds runs."""

BATCH_SECONDS: Final = 300.0
"""The time a batch of a map's items has elsewhere: an EXPRESS child's five minutes."""


class Crew:
    """The processes of one course. `allowed` says of an attempt that begins what the record has against it."""

    def __init__(self, play: Play, services: Services, door: Door, allowed: Allowed) -> None:
        self._play = play
        self._services = services
        self._door = door
        self._allowed = allowed
        self._processes = 0

    async def workers(self) -> None:
        """A worker at work, and another one whenever it has died."""
        class_name = self._play.workflow.class_name
        while True:
            process = self._process(WORKER)
            worker = Worker(
                process.services,
                class_name=class_name,
                lanes=self._play.settings.classes[class_name].lanes,
                concurrency=8,
                isolation=Apart(self, process),
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
            # What a dead process kept in memory, the next one does not find.
            self._play.modules.restore()

    async def sweeper(self) -> None:
        """A pass each minute; its process lives."""
        process = Process("sweeper", 1, self._services, self._door, counts=False)
        terms = terms_of(self._play.settings)
        settle = Settler(process.services, self.workflows(), terms)
        while True:
            await self._services.clock.sleep(PASS_SECONDS)
            if not self._at_rest():
                await sweep(process.services, terms, now=self._services.clock.now(), settle=settle)

    def _at_rest(self) -> bool:
        """Whether a pass would find nothing: every run waits for a time that is far away, as it may for days."""
        runs = self._services.runs
        assert isinstance(runs, MemoryRunStore)
        soon = self._services.clock.now() + AHEAD
        return all(
            run.terminal or (run.status is Status.WAITING and run.due_at is not None and run.due_at > soon)
            for run in runs.rows.values()
        )

    async def batch(self, event: Mapping[str, Any]) -> object:
        """The fan-out function; one that dies has failed, and its caller tries again."""
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

    def attempts(self, process: Process) -> Attempts:
        """What executes tasks in a process."""
        tasks = WatchedTasks(self._door.course, process, self._allowed)
        return Attempts(self._play.settings, self._services.clock, tasks=tasks)

    def _process(self, kind: str) -> Process:
        self._processes += 1
        return Process(kind, self._processes, self._services, self._door)

    def workflows(self) -> WorkflowCache:
        """What a process that has just begun knows of workflows: nothing."""
        return WorkflowCache(self._services.catalog, self._play.settings.classes)

    def runner(self, process: Process) -> Runner:
        """A runner in a process that is there already."""
        return Runner(process.services, self.workflows(), self.attempts(process), worker=process.name)


class Apart(Isolation):
    """Suspects: here in the worker's own process, which nothing but the explorer kills."""

    def __init__(self, crew: Crew, process: Process) -> None:
        self._crew = crew
        self._process = process

    async def handle(self, message: Received) -> Disposition:
        """Work on one message."""
        return await self._crew.runner(self._process).handle(message)

    def stop(self) -> None:
        """There are no children to tell."""
