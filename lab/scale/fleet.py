"""Who works: processes of one run at a time, and a lane's event source mapping with its functions' sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fanfold.engine.record.messages import QueueName, Received
from fanfold.service.worker.batch import work
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.process import Worker
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache
from lab.scale.deployment import CLASS, LANE
from lab.scale.limits import Operation
from lab.scale.region import Processor, Region
from lab.scale.room import Functions
from lab.scale.services import services

FUNCTION_SECONDS: Final = 900.0
LOOK_SECONDS: Final = 0.2
"""How often a mapping that has no room looks whether it has more: it gets one each 0.2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A batch's turn: its messages taken, its last commit, its place free for the next one, in virtual seconds."""

    taken: float
    written: float
    freed: float


class Process:
    """A worker process of one run at a time, on a processor of its own."""

    def __init__(self, region: Region) -> None:
        self.worker = Worker(
            services(region, Processor()),
            class_name=CLASS,
            lanes=region.settings.classes[CLASS].lanes,
            concurrency=1,
            isolation=Isolation(region.settings),
        )

    async def run(self, after: float) -> None:
        """Begin after so many seconds, and work until it is stopped."""
        await asyncio.sleep(after)
        await self.worker.run()


class LaneMapping:
    """The lane's event source mapping: as many batches at once as Lambda lets it have by then."""

    def __init__(self, region: Region) -> None:
        self.turns: list[Turn] = []
        self._region = region
        self._queue = QueueName(class_name=CLASS, role=LANE)
        self._room = Functions(deployment=region.deployment)
        self._warm: list[_Sandbox] = []
        self._going: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self._freed = asyncio.Event()

    async def poll(self) -> None:
        """Take what is there while there is room."""
        region = self._region
        while True:
            if len(self._going) >= self._room.at(region.now)[0]:
                self._freed.clear()
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._freed.wait()
                except TimeoutError:
                    continue
                continue
            messages = await region.plain.queue.receive(
                self._queue,
                limit=region.deployment.batch_size,
                wait_seconds=20,
                visibility_seconds=int(FUNCTION_SECONDS),
            )
            task = asyncio.create_task(self._invoke(messages))
            self._going.add(task)
            task.add_done_callback(self._ended)

    async def quiet(self) -> None:
        """Wait for the batches that go on. Raises what one of them all has raised."""
        if self._going:
            await asyncio.wait(self._going)
        for error in self._errors:
            raise error

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._going.discard(task)
        self._freed.set()
        if (error := task.exception()) is not None:
            self._errors.append(error)

    async def _invoke(self, messages: Sequence[Received]) -> None:
        region = self._region
        taken = region.now
        await region.answer(Operation.RECEIVE)
        box = self._warm.pop() if self._warm else _Sandbox(region)
        again = await box.invoke(messages)
        done = [message for message in messages if message.message_id not in again]
        if done:
            await region.answer(Operation.DELETE)
            await region.plain.queue.delete(done)
        self._warm.append(box)
        courses = [region.courses.get(m.message.run_id) for m in messages if m.message is not None]
        # Of a batch of which no claim was made there is nothing to tell.
        written = [course.touched for course in courses if course is not None and course.writes]
        if written:
            self.turns.append(Turn(taken=taken, written=max(written), freed=region.now))


class _Sandbox:
    """What stays warm between invocations, as `fanfold.service.worker.invocation` keeps it."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._services = services(region, Processor.of_function(region.deployment.memory_mb))
        self._workflows = WorkflowCache(self._services.catalog, region.settings.classes)
        self._attempts = TaskRunner(region.settings, self._services.clock)

    async def invoke(self, messages: Sequence[Received]) -> Sequence[str]:
        """One invocation; returns the ids of messages to be delivered again."""
        for message in messages:
            if message.message is not None:
                self._region.received(message.message.run_id)
        runner = MessageHandler(
            self._services, self._workflows, self._attempts, worker="function", alone=len(messages) == 1
        )
        return await work(
            self._services,
            runner,
            messages,
            seconds_left=FUNCTION_SECONDS,
            spent=lambda: bool(self._attempts.lingering),
        )
