"""The whole service in memory on virtual time: submit runs, let workers work, look at what is recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.adapters.memory import (
    MemoryBlobs,
    MemoryCatalog,
    MemoryFanOut,
    MemoryMapRecords,
    MemoryQueue,
    MemoryRunStore,
    MemorySeats,
    MemorySecrets,
    MemorySlots,
    MemorySweeperState,
    MemoryTokens,
    RunCodec,
)
from fanfold.engine.language.document_check import check
from fanfold.engine.language.workflow import Workflow, version_of
from fanfold.engine.payload import Json
from fanfold.engine.ports import Execution, IfAbsent, Registered, RunKey
from fanfold.engine.record.messages import Envelope, QueueName, Received, Wake, first_version
from fanfold.engine.record.run import Run, Status
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import Services
from fanfold.service.worker.dispositions import Ack, Disposition
from fanfold.service.worker.map_batches import BatchEnd, MapBatches, Order
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.process import Worker
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.worker.visibility_extender import visibility_seconds
from fanfold.service.workflow_cache import WorkflowCache
from fanfold.tasks import registry
from tests.support import probes
from tests.support.clock import SeededIds
from tests.support.faults import Faulty
from tests.support.virtual import PROCESS, VirtualClock, loop

TENANT = "acme"
LANE = QueueName(class_name="model", role="normal")
RESUME_QUEUE = QueueName(class_name="model", role="resume")


def codec() -> RunCodec:
    """Every record makes the round trip it makes in the real table."""
    return RunCodec(encode=to_item, decode=from_item)


class NoIsolation:
    """Suspects in a worker of the test's own process: nothing kills it."""

    def __init__(self, runner: MessageHandler | None = None) -> None:
        self.runner = runner

    async def handle(self, message: Any) -> Disposition:
        assert self.runner is not None
        return await self.runner.handle(message)

    def stop(self) -> None:
        """Nothing to stop."""


class Elsewhere:
    """Maps elsewhere: what goes on there belongs to no process of the test, and outlives the one that started it."""

    def __init__(self, inner: MemoryFanOut) -> None:
        self.inner = inner
        self.going, self.stop, self.throttled = inner.going, inner.stop, inner.throttled

    async def start(self, execution: Execution) -> bool:
        """See `FanOut.start`."""
        token = PROCESS.set("")
        try:
            return await self.inner.start(execution)
        finally:
            PROCESS.reset(token)


def with_fan_out(**given: Any) -> Settings:
    """Settings of a deployment that can work on maps elsewhere."""
    return Settings(chaos=True, classes={"model": ClassSettings(state_machine="memory")}, **given)


@dataclass
class World:
    """One deployment in memory. Must be made inside the virtual loop."""

    settings: Settings = field(default_factory=lambda: Settings(chaos=True))
    seed: int = 0

    def __post_init__(self) -> None:
        clock = VirtualClock()
        self.runs = MemoryRunStore(codec())
        self.queue = MemoryQueue(clock)
        self.slots = MemorySlots({name: c.max_queue_depth for name, c in self.settings.classes.items()})
        self.blobs = MemoryBlobs()
        self.map_records = MemoryMapRecords()
        self.rings = Faulty(self.queue)  # what maps elsewhere send
        self.fan_out = Elsewhere(MemoryFanOut(self.blobs, self.rings))  # type: ignore[arg-type]  # any port, with faults
        self.services = Services(
            settings=self.settings,
            runs=self.runs,
            queue=self.queue,
            slots=self.slots,
            blobs=self.blobs,
            catalog=MemoryCatalog(),
            tokens=MemoryTokens(),
            sweeper_state=MemorySweeperState(),
            secrets=MemorySecrets(),
            seats=MemorySeats(self.settings.max_watchers),
            map_records=self.map_records,
            fan_out=self.fan_out,
            clock=clock,
            ids=SeededIds(self.seed),
        )
        self.fan_out.inner.work = self.batch
        self._batches = MapBatches(
            self.services,
            WorkflowCache(self.services.catalog, self.settings.classes),
            TaskRunner(self.settings, clock),
        )
        self.log = probes.fresh_log()
        self._submitted = 0
        self._processes = 0

    async def batch(self, event: Mapping[str, Any]) -> BatchEnd:
        """The fan-out function: works on a batch of a map's items."""
        until = self.services.clock.now() + timedelta(seconds=300)
        return await self._batches.work(Order.from_event(event), until=until)

    async def register(self, document: dict[str, Any]) -> Workflow:
        """Register a workflow document; what is wrong with it is the test's fault."""
        classes = {name: c.max_step_seconds for name, c in self.settings.classes.items()}
        document = {"name": "flow", **document}
        workflow = check(document, name=None, tasks=registry.names(chaos=True), classes=classes)
        await self.services.catalog.register(
            TENANT,
            Registered(
                name=workflow.name,
                version=version_of(document),
                document=document,
                created_at=self.services.clock.now(),
            ),
        )
        return workflow

    async def submit(self, workflow: Workflow, input: Json = None, *, row: bool = True, **given: Any) -> Envelope:
        """Accept a run as the API does: a place, a message, and (unless `row` is false) its row."""
        self._submitted += 1
        now = self.services.clock.now()
        envelope = Envelope(
            tenant=TENANT,
            run_id=f"r{self._submitted:025d}",
            submission=self.services.ids.token(),
            workflow=workflow.name,
            workflow_version=workflow.version,
            class_name=workflow.class_name,
            lane="normal",
            input=input,
            request_hash="0" * 64,
            accepted_at=now,
            deadline=now + timedelta(seconds=workflow.timeout_seconds),
            queue_deadline=None
            if workflow.queue_timeout_seconds is None
            else now + timedelta(seconds=workflow.queue_timeout_seconds),
            slot=(await self.slots.reserve(workflow.class_name, now=now)).slot,
        )
        envelope = replace(envelope, **given)
        await self.queue.send(QueueName(class_name=envelope.class_name, role=envelope.lane), envelope)
        if row:
            await self.runs.put(
                replace(first_version(envelope), write_id=self.services.ids.token()), IfAbsent(), now=now
            )
        return envelope

    def runner(self, name: str = "worker") -> MessageHandler:
        """A runner of its own, as every process has."""
        return MessageHandler(
            self.services,
            WorkflowCache(self.services.catalog, self.settings.classes),
            TaskRunner(self.settings, self.services.clock),
            worker=name,
        )

    def process(self, name: str = "") -> Process:
        """A process of its own: ports that can fail, a runner, and a death."""
        self._processes += 1
        return Process(self, name or f"p{self._processes}")

    @asynccontextmanager
    async def worker(self, *, concurrency: int = 32) -> AsyncIterator[Worker]:
        """A worker process at work for the length of the block."""
        isolation = NoIsolation(self.runner("isolated"))
        worker = Worker(
            self.services,
            class_name="model",
            lanes=["normal"],
            concurrency=concurrency,
            isolation=isolation,  # type: ignore[arg-type]  # the same two methods, without processes
        )
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task

    async def row(self, envelope: Envelope) -> Run:
        """The run's record."""
        key = RunKey(tenant=envelope.tenant, run_id=envelope.run_id)
        run = await self.runs.get(key, now=self.services.clock.now())
        assert run is not None
        return run

    async def ring(self, envelope: Envelope) -> None:
        """Send a wake, as the sweeper does for a run that is due."""
        wake = Wake(
            tenant=envelope.tenant,
            run_id=envelope.run_id,
            submission=envelope.submission,
            class_name=envelope.class_name,
        )
        await self.queue.send(QueueName(class_name=envelope.class_name, role="resume"), wake)

    async def ended(self, envelope: Envelope, *, within: float = 3600) -> Run:
        """The run's record once it is terminal; fails when it takes longer than `within` virtual seconds."""
        key = RunKey(tenant=envelope.tenant, run_id=envelope.run_id)
        pause = 0.05
        async with asyncio.timeout(within):
            while True:
                run = await self.runs.get(key, now=self.services.clock.now())
                if run is not None and run.terminal:
                    return run
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 1.05)

    async def play(self, document: dict[str, Any], input: Json = None, *, within: float = 3600, **given: Any) -> Run:
        """Register, submit, and work until the run has ended."""
        envelope = await self.submit(await self.register(document), input, **given)
        async with self.worker():
            return await self.ended(envelope, within=within)


class Process:
    """One process of a world: its own view of the ports, so that its calls can fail, and it can die."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.runs, self.queue, self.slots, self.blobs, self.catalog, self.map_records, self.fan_out = (
            Faulty(port)
            for port in (
                world.runs,
                world.queue,
                world.slots,
                world.services.blobs,
                world.services.catalog,
                world.map_records,
                world.fan_out,
            )
        )
        self.services = replace(
            world.services,
            runs=self.runs,
            queue=self.queue,
            slots=self.slots,
            blobs=self.blobs,
            catalog=self.catalog,
            map_records=self.map_records,
            fan_out=self.fan_out,
            ids=SeededIds(f"{world.seed}/{name}"),
        )
        self.attempts = TaskRunner(world.settings, self.services.clock)
        self.runner = self.new_runner()

    def new_runner(self, isolate: Any = None) -> MessageHandler:
        """Another runner in this process."""
        return MessageHandler(
            self.services,
            WorkflowCache(self.services.catalog, self.world.settings.classes),
            self.attempts,
            worker=self.name,
            isolate=isolate,
        )

    def begin(self, coroutine: Any) -> asyncio.Task[Any]:
        """Do something in this process."""
        token = PROCESS.set(self.name)
        try:
            return asyncio.create_task(coroutine)
        finally:
            PROCESS.reset(token)

    async def receive(self, queue: QueueName = LANE, *, wait: int = 0, limit: int = 1) -> Sequence[Received]:
        """Messages, hidden for a lease and a little."""
        return await self.queue.receive(
            queue, limit=limit, wait_seconds=wait, visibility_seconds=visibility_seconds(self.world.settings)
        )

    def take(self, message: Received, *, stop_before: Any = None) -> asyncio.Task[Disposition]:
        """Work on a message, in the background."""
        return self.begin(self.runner.handle(message, stop_before=stop_before))

    async def work(self, queue: QueueName = LANE) -> Disposition:
        """Receive one message (it must be there within 20 s), work on it, and settle it."""
        (message,) = await self.receive(queue, wait=20)
        what = await self.take(message)
        if isinstance(what, Ack):
            await self.queue.delete([message])
        else:
            await self.queue.hide([message], seconds=what.seconds)
        return what

    @asynccontextmanager
    async def worker(self, *, concurrency: int = 32, lanes: Sequence[str] = ("normal",)) -> AsyncIterator[Worker]:
        """This process as `fanfold worker`, for the length of the block."""
        isolation = NoIsolation(self.new_runner())
        worker = Worker(
            self.services,
            class_name="model",
            lanes=lanes,
            concurrency=concurrency,
            isolation=isolation,  # type: ignore[arg-type]  # the same two methods, without processes
        )
        self.at_work = worker
        self.working = self.begin(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait({self.working})

    async def kill(self) -> None:
        """The process is gone at this moment: nothing it would still do is done."""
        for port in (self.runs, self.queue, self.slots, self.blobs, self.catalog, self.map_records, self.fan_out):
            port.dead = True
        for task in loop().tasks_of(self.name):
            task.cancel()
        await asyncio.sleep(0)


def journal_of(run: Run) -> Sequence[str]:
    """The journal as `type step` words, in order."""
    return [f"{entry.type} {entry.step}" if entry.step else str(entry.type) for entry in run.journal]


def consistent(run: Run) -> None:
    """The journal has no gap and agrees with the state."""
    assert [entry.seq for entry in run.journal] == list(range(1, len(run.journal) + 1))
    assert all(a.at <= b.at for a, b in zip(run.journal, run.journal[1:], strict=False))
    if run.terminal:
        assert run.finished_at is not None
        assert run.expires_at is not None
        assert run.journal[-1].type == f"run.{run.status}"
    if run.status is Status.WAITING:
        assert run.due_at is not None
    started = Counter(entry.step for entry in run.journal if entry.type == "step.started")
    for name, state in run.steps.items():
        assert started[name] == state.attempts, name
