"""The worker as a process: polls the class's queues, holds many runs, drains when told to stop (R5, R7).

The same engine, shell and runner as the Lambda; only where messages come from and who ends the
process differ.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.record.messages import RESUME, QueueName, Received
from fanfold.service.clock import SystemClock
from fanfold.service.settings import Settings
from fanfold.service.task_modules import load_tasks
from fanfold.service.telemetry.reporting import Metric, configure, count, flush, logger
from fanfold.service.wiring import Services, services
from fanfold.service.worker.batch import delete, disposition, hand_back, served
from fanfold.service.worker.clockcheck import ask_the_time, clock_off
from fanfold.service.worker.dispositions import Disposition
from fanfold.service.worker.garbage import look_seldom
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.lanes import Lanes
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.slots import Slots
from fanfold.service.worker.stop_signals import StopSignals
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.worker.visibility_extender import VisibilityExtender, visibility_seconds
from fanfold.service.worker.worker_name import worker_name
from fanfold.service.workflow_cache import WorkflowCache

POLL_SECONDS = 5
"""How long a poll waits for a message. Twelve asks a minute and queue are below half a dollar a month."""

LAST_ANSWER_SECONDS = 0.2
"""How long a worker that has nothing left to do waits for a poll: an answer on its way is shown to others at once. A
message that a poll left behind still takes is seen again after its visibility."""

FAULT_PAUSE_SECONDS = 2.0
"""Pause of a poller whose queue could not be asked."""

BREAK_OFF_SECONDS = 6.0
"""How long a run that is broken off may take to be let go: its tasks stop within two seconds, its record is written."""

CLOCK_SECONDS = 30.0
"""How often a process whose clock is off asks AWS for the time."""

METRICS_SECONDS = 60.0
"""How often a process writes its metrics."""


class Exit(Enum):
    """Why a worker process ended."""

    STOPPED = "stopped"  # it was told to
    SPENT = "spent"  # a task would not stop; the process must be replaced


class Worker:
    """Polls queues for as long as it is not told to stop."""

    def __init__(
        self,
        services: Services,
        *,
        class_name: str,
        lanes: Sequence[str],
        concurrency: int,
        isolation: Isolation,
        attempts: TaskRunner | None = None,
    ) -> None:
        self._services = services
        self._class_name = class_name
        self._lane_slots = Slots(concurrency)
        # Work begun never waits behind work not begun: its share is beside the lanes', not of it.
        self._resume_slots = Slots(math.ceil(concurrency / 2))
        self._lanes = self._receiver(self._lane_slots, *lanes)
        self._resume = self._receiver(self._resume_slots, RESUME)
        self._attempts = TaskRunner(services.settings, services.clock) if attempts is None else attempts
        self._isolation = isolation
        self._runner = MessageHandler(
            services,
            WorkflowCache(services.catalog, services.settings.classes, aside=services.aside),
            self._attempts,
            worker=worker_name(),
            isolate=isolation.handle,
        )
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Disposition]] = set()
        self._polls: set[asyncio.Task[Sequence[Received]]] = set()
        self._ended: list[tuple[Received, asyncio.Task[Disposition]]] = []
        self._settling: asyncio.Task[None] | None = None

    def _receiver(self, slots: Slots, *roles: str) -> Lanes:
        return Lanes(
            self._services.queue,
            [QueueName(class_name=self._class_name, role=role) for role in roles],
            slots,
            visibility_seconds=visibility_seconds(self._services.settings),
            wait_seconds=POLL_SECONDS,
        )

    def stop(self) -> None:
        """Take no new message; let every run go at its next step boundary."""
        if not self._stop.is_set():
            logger().info("draining", extra={"runs": len(self._tasks)})
            self._stop.set()
            self._lanes.leave()
            self._runner.hurry(self._services.clock.now())
            self._isolation.stop()

    async def run(self) -> Exit:
        """Work until told to stop, or until a task that would not stop has spent the process."""
        async with VisibilityExtender(self._services, hidden=True) as self._keeper:
            pollers = [
                asyncio.create_task(self._poll(self._resume, self._resume_slots)),
                asyncio.create_task(self._poll(self._lanes, self._lane_slots)),
            ]
            side = [asyncio.create_task(self._watch()), asyncio.create_task(self._meter())]
            stopping = asyncio.create_task(self._stop.wait())
            try:
                # A poller that ends by itself has met a bug: better no worker than a deaf one.
                await asyncio.wait({stopping, *pollers}, return_when=asyncio.FIRST_COMPLETED)
                self.stop()
                await self._drain()
                await self._leave_polls()
                await asyncio.wait(pollers, timeout=POLL_SECONDS)
            finally:
                for task in (stopping, *pollers, *side):
                    task.cancel()
                await asyncio.wait({stopping, *pollers, *side})
                await self._lanes.close()
                flush()
            for task in (*pollers, *side):
                if not task.cancelled():
                    task.result()
        return Exit.SPENT if self._attempts.spent else Exit.STOPPED

    async def _drain(self) -> None:
        """Give what is running time to end; what does not is broken off, and its runs are let go."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._services.settings.drain_seconds)
        if self._tasks:
            logger().info("breaking off", extra={"runs": len(self._tasks)})
            self._runner.break_off()
            await asyncio.wait(self._tasks, timeout=BREAK_OFF_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        if self._settling is not None:
            await self._settling

    async def _leave_polls(self) -> None:
        """Wait for no poll any longer than for an answer on its way."""
        if self._polls:
            await asyncio.wait(self._polls, timeout=LAST_ANSWER_SECONDS)
        for poll in self._polls:
            poll.cancel()

    async def _poll(self, queues: Lanes, slots: Slots) -> None:
        while not self._stop.is_set():
            await self._until_in_time()
            try:
                poll = asyncio.create_task(queues.receive())
                self._polls.add(poll)
                poll.add_done_callback(self._polls.discard)
                messages = await poll
                if self._stop.is_set() and messages:
                    # They came while this worker was told to stop: others need not wait for them.
                    slots.give(len(messages))
                    await self._services.queue.hide(messages, seconds=0)
                    return
                for message in messages:
                    self._begin(message, slots)
            except InfrastructureError as error:
                logger().warning("a queue could not be asked", extra={"error": repr(error)})
                await self._services.clock.sleep(FAULT_PAUSE_SECONDS)

    async def _until_in_time(self) -> None:
        """Nothing is taken while this machine's clock is off (R11): returns when it is right, or told to stop."""
        while (offset := clock_off(self._services)) is not None and not self._stop.is_set():
            count(Metric.CLOCK_OFF)
            logger().error(f"this machine's clock is {offset:+.1f} s off AWS's: nothing is taken")
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOCK_SECONDS):
                    await self._stop.wait()
            try:
                await ask_the_time(self._services, self._class_name)
            except InfrastructureError as error:
                logger().warning("AWS could not be asked for the time", extra={"error": repr(error)})

    def _begin(self, message: Received, slots: Slots) -> None:
        self._keeper.keep([message])
        task = asyncio.create_task(self._runner.handle(message))
        self._tasks.add(task)

        def ended(task: asyncio.Task[Disposition]) -> None:
            self._tasks.discard(task)
            self._keeper.release([message])
            slots.give(1)
            if not task.cancelled():
                self._ended.append((message, task))
                self._settle_soon()

        task.add_done_callback(ended)

    def _settle_soon(self) -> None:
        """Settle messages together: those that end while a call is under way share the next one."""
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        while self._ended:
            batch, self._ended = self._ended, []
            ended = [(message, disposition(task, message)) for message, task in batch]
            await delete(self._services, served(ended))
            await hand_back(self._services, ended)

    async def _watch(self) -> None:
        """A process with a thread that can't be stopped takes no new run (R7)."""
        await self._attempts.until_spent()
        logger().warning("a task would not stop; this process ends once its runs are settled")
        self.stop()

    async def _meter(self) -> None:
        while True:
            await self._services.clock.sleep(METRICS_SECONDS)
            flush()


def serve(settings: Settings, *, class_name: str, lanes: Sequence[str] | None = None, concurrency: int) -> Exit:
    """Run a worker in this process until SIGTERM or SIGINT. Raises what `check` does.

    An `async` task that would not stop is left where it is, with its loop: the process has to end by `os._exit` or by
    replacing itself. Who was told to stop while it drained for another reason has stopped.
    """
    check(settings, class_name=class_name, lanes=lanes, concurrency=concurrency)
    known = settings.classes[class_name].lanes
    runner, signals, attempts = asyncio.Runner(), StopSignals(), TaskRunner(settings, SystemClock())
    try:
        ended = runner.run(_serve(settings, class_name, lanes or known, concurrency, attempts, signals))
    finally:
        signals.forget()
        if not attempts.lingering:
            runner.close()  # it waits for every task
    return Exit.STOPPED if signals.told else ended


def check(settings: Settings, *, class_name: str, lanes: Sequence[str] | None, concurrency: int) -> None:
    """Raises ValueError for a class or lane that is not configured, naming those there are."""
    if class_name not in settings.classes:
        raise ValueError(f"there is no class {class_name!r}; there are: {', '.join(sorted(settings.classes))}")
    known = settings.classes[class_name].lanes
    for lane in lanes or ():
        if lane not in known:
            raise ValueError(f"class {class_name!r} has no lane {lane!r}; it has: {', '.join(known)}")
    if concurrency < 1:
        raise ValueError("concurrency must be at least 1")


async def _serve(
    settings: Settings,
    class_name: str,
    lanes: Sequence[str],
    concurrency: int,
    attempts: TaskRunner,
    signals: StopSignals,
) -> Exit:
    configure(settings)
    load_tasks(settings, secrets=True)
    worker = Worker(
        services(settings),
        class_name=class_name,
        lanes=lanes,
        concurrency=concurrency,
        isolation=Isolation(settings),
        attempts=attempts,
    )
    signals.listen(worker.stop)
    logger().info("worker started", extra={"class": class_name, "lanes": list(lanes), "concurrency": concurrency})
    look_seldom()
    return await worker.run()
