"""A deployment's processes: Lambda workers behind event source mappings, process workers, sweeper, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.record.messages import DEAD, QueueName, Received
from fanfold.service.dead_letters import revive
from fanfold.service.engine_limits import engine_limits
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.worker.batch import work
from fanfold.service.worker.dispositions import Disposition, Redeliver
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.process import Worker
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.worker.visibility_extender import VisibilityExtender
from fanfold.service.workflow_cache import WorkflowCache
from tests.simulation.nodes import Node
from tests.simulation.perils import Bug
from tests.simulation.releases import FUNCTION_SECONDS, queues_of

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


ROLLED_SECONDS = 120
"""How long it takes until all processes of a service are replaced."""


KEPT_WARM = 0.8
"""Of the invocations that find one, so many go to a warm sandbox."""


class Sandbox:
    """A Lambda sandbox: what stays warm between its invocations."""

    def __init__(self, simulation: Simulation, queue: QueueName) -> None:
        self.node = simulation.node("lambda")
        if queue not in queues_of(self.node.settings):
            # A mapping is made after the function that it calls.
            self.node = simulation.node("lambda", simulation.rollout.current)
        self.workflows = WorkflowCache(self.node.services.catalog, self.node.settings.classes)
        self.attempts = TaskRunner(self.node.settings, self.node.services.clock)

    def invoke(self, messages: Sequence[Received]) -> asyncio.Task[Sequence[str]]:
        """One invocation, as `Invocations.work` makes it."""
        services, name, alone = self.node.services, self.node.name, len(messages) == 1
        runner = MessageHandler(services, self.workflows, self.attempts, worker=name, alone=alone)
        return self.node.begin(
            work(
                services,
                runner,
                messages,
                seconds_left=self.node.release.function_seconds,
                spent=lambda: bool(self.attempts.lingering),
            )
        )


class Mapping:
    """An event source mapping: so many invocations at once, batches of so many messages."""

    def __init__(self, simulation: Simulation, queue: QueueName, *, batch: int) -> None:
        self._simulation = simulation
        self._queue = queue
        self._batch = batch
        self._warm: list[Sandbox] = []
        # Of the class that was always there the name is left out, so that its chance is what it was.
        place = queue.role if queue.class_name == "model" else str(queue)
        self._random = simulation.fate.rng(f"mapping.{place}")

    async def poll(self) -> None:
        """One of its pollers."""
        queue = self._simulation.queue
        while True:
            if not self._deployed:
                await asyncio.sleep(5)
                continue
            messages = await queue.receive(
                self._queue, limit=self._batch, wait_seconds=20, visibility_seconds=FUNCTION_SECONDS
            )
            if messages and self._deployed and not self._throttled():
                again = await self._invoke(messages)
                if again is not None:
                    await queue.delete([m for m in messages if m.message_id not in again])

    def _throttled(self) -> bool:
        """Whether Lambda refuses the invocation: what was received is received again, when it is visible."""
        share, fate = self._simulation.deployment.throttled, self._simulation.fate
        site = f"mapping.{self._queue}.throttled"
        return share > 0 and fate.strikes(site, share, at=self._simulation.loop.time()) is not None

    @property
    def _deployed(self) -> bool:
        return self._queue in queues_of(self._simulation.rollout.current.settings)

    def _sandbox(self) -> Sandbox:
        self._warm = [box for box in self._warm if self._simulation.rollout.keeps(box.node)]
        if self._warm and self._random.random() < KEPT_WARM:
            return self._warm.pop()
        return Sandbox(self._simulation, self._queue)

    async def _invoke(self, messages: Sequence[Received]) -> Sequence[str] | None:
        """Ids to deliver again; None when the invocation failed."""
        box = self._sandbox()
        task = box.invoke(messages)
        await asyncio.wait({task}, timeout=box.node.release.function_seconds)
        if not task.done():
            box.node.kill("the function's timeout")
            await asyncio.wait({task})
        if box.node.dead or task.cancelled():
            return None
        if (error := task.exception()) is not None:
            self._simulation.audit.fail("a worker does not raise", repr(error))
            return None
        left = box.node.tasks
        self._simulation.audit.hold(not left, "nothing outlives an invocation", left)
        self._warm.append(box)
        return task.result()


class Isolation:
    """Suspects of a process worker in children of their own."""

    def __init__(self, simulation: Simulation, parent: Node) -> None:
        self._simulation = simulation
        self._parent = parent
        self._runners: list[tuple[Node, MessageHandler]] = []

    async def handle(self, message: Received) -> Disposition:
        """As `fanfold.service.worker.isolation` does, with a simulated child."""
        simulation = self._simulation
        child = simulation.node("child", self._parent.release)
        services = child.services
        cache = WorkflowCache(services.catalog, child.settings.classes)
        runner = MessageHandler(services, cache, TaskRunner(child.settings, services.clock), worker=child.name)
        self._runners.append((child, runner))

        async def one() -> Disposition:
            async with VisibilityExtender(services, [message]):
                return await runner.handle(message)

        task = child.begin(one())
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            child.kill("its parent gave it up")
            raise
        finally:
            self._runners.remove((child, runner))
        return Redeliver(seconds=1) if task.cancelled() or task.exception() is not None else task.result()

    def stop(self) -> None:
        """Tell the children to let their runs go."""
        for child, runner in self._runners:
            child.context.run(runner.hurry, child.services.clock.now())
            self._simulation.loop.call_later(child.settings.drain_seconds, runner.break_off, context=child.context)


async def process_worker(simulation: Simulation, number: int, class_name: str = "model") -> None:
    """A process worker, begun anew whenever it ended; each deployment ends it, sooner or later."""
    rng = simulation.fate.rng(f"worker{number}")
    while True:
        if class_name not in simulation.rollout.current.settings.classes:
            await asyncio.sleep(5)
            continue
        node = simulation.node("worker")
        worker = Worker(
            node.services,
            class_name=class_name,
            lanes=node.settings.classes[class_name].lanes,
            concurrency=rng.choice((1, 2, 5)),
            isolation=Isolation(simulation, node),  # type: ignore[arg-type]  # the same two methods, without processes
        )
        task = node.begin(worker.run())

        def told_to_stop(node: Node = node, worker: Worker = worker) -> None:
            if not node.dead:
                simulation.note(node.name, "is told to stop", "")
                worker.stop()

        if rng.random() < 0.3 and simulation.fate.faults:
            simulation.loop.call_later(rng.random() * 200, told_to_stop, context=node.context)
        if (following := simulation.rollout.next) is not None:
            chance, _, _ = simulation.fate.chance(f"{node.name}.rolled")
            after = following.at - simulation.loop.time() + chance * ROLLED_SECONDS
            simulation.loop.call_later(after, told_to_stop, context=node.context)
        await asyncio.wait({task})
        if not node.dead and not task.cancelled() and task.exception() is not None:
            # A poller that meets a bug ends its process: better no worker than a deaf one.
            simulation.audit.hold(isinstance(task.exception(), Bug), "a worker does not raise", repr(task.exception()))
        await asyncio.sleep(rng.choice((1.0, 10.0)))


async def sweeper(simulation: Simulation) -> None:
    """A pass each minute; some die on the way, some never begin."""
    while True:
        await asyncio.sleep(60)
        simulation.audit.liveness.look()
        node = simulation.node("sweeper")
        settle = QueueExpiry(
            node.services,
            WorkflowCache(node.services.catalog, node.settings.classes),
            engine_limits(node.settings),
        )
        task = node.begin(
            sweep(node.services, engine_limits(node.settings), now=node.services.clock.now(), expire=settle)
        )
        await asyncio.wait({task}, timeout=55)
        if not task.done():
            node.kill("the function's timeout")
            await asyncio.wait({task})
        simulation.audit.liveness.passes += 1
        if not task.cancelled() and task.exception() is not None:
            _only_services(simulation, task.exception())


async def dead_letters(simulation: Simulation, class_name: str = "model") -> None:
    """The dead-letter function, looked at each minute."""
    letters = QueueName(class_name=class_name, role=DEAD)
    while True:
        await asyncio.sleep(60)
        if class_name not in simulation.rollout.current.settings.classes:
            continue
        messages = await simulation.queue.receive(letters, limit=10, wait_seconds=0, visibility_seconds=120)
        if not messages:
            continue
        node = simulation.node("deadletter")
        task = node.begin(revive(node.services, messages, now=node.services.clock.now()))
        await asyncio.wait({task}, timeout=60)
        if not task.done():
            node.kill("the function's timeout")
            await asyncio.wait({task})
        if task.cancelled():
            continue
        if task.exception() is not None:
            _only_services(simulation, task.exception())
            continue
        await simulation.queue.delete([m for m in messages if m.message_id not in task.result()])


def _only_services(simulation: Simulation, error: BaseException | None) -> None:
    """The sweeper and the dead letters' function may fail with the services and by their own bugs, in no other way."""
    errors = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    if not all(isinstance(one, InfrastructureError | Bug) for one in errors):
        simulation.audit.fail("only services fail", repr(error))
