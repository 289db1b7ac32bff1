"""The functions as Lambda invokes them, in this process, each call of theirs counted.

The API answers a request as from API Gateway; the worker is given what one receive of an event source mapping would
bring, and what it is done with is deleted as a mapping does; batches of maps are worked on as by the state machine.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from fanfold.adapters.aws.calls import Client
from fanfold.adapters.aws.run_items import size, to_item
from fanfold.adapters.memory import MemoryFanOut
from fanfold.engine.ports import RunKey
from fanfold.engine.record.messages import RESUME, QueueName, Received
from fanfold.engine.record.run import Run, Status
from fanfold.service.aws_clients import Aws
from fanfold.service.functions.api import build
from fanfold.service.telemetry.reporting import flush
from fanfold.service.wiring import Services
from fanfold.service.worker.batch import work
from fanfold.service.worker.map_batches import MapBatches, Order
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.worker.visibility_extender import visibility_seconds
from fanfold.service.workflow_cache import WorkflowCache
from loadtest.aws_meter import CountedPort, Meter
from loadtest.server import TENANT, request_event

CLASS = "model"
LANE = "normal"
SECONDS_LEFT = 900.0
BATCH_SECONDS = 300.0
LOOKS = 200
"""Rounds without a message after which a run that has not ended counts as lost."""
PAUSE_SECONDS = 0.05
ANSWER_SECONDS = 0.01
"""What Step Functions takes to say how an execution is: one that has just rung has ended by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What some runs took from their submission to their end, all of them together.

    `invocations`, `processor_seconds` and `log_bytes` are by function; `stored_bytes` what is left in the table.
    """

    runs: int
    at_once: int
    meter: Meter
    invocations: Mapping[str, int]
    processor_seconds: Mapping[str, float]
    log_bytes: int
    stored_bytes: int
    output: Any = None

    @property
    def calls(self) -> Mapping[str, float]:
        """Calls by operation, per run."""
        return {operation: count / self.runs for operation, count in sorted(self.meter.calls.items())}


Watch = Callable[[str], AbstractContextManager[object]]
"""What is around each invocation of the function of that name."""


@dataclass(slots=True, kw_only=True)
class _Books:
    invocations: Counter[str] = field(default_factory=Counter)
    processor_seconds: dict[str, float] = field(default_factory=dict)
    log_bytes: int = 0

    @contextmanager
    def invocation(self, function: str, tell: Callable[[], None] = flush) -> Iterator[None]:
        """One invocation: its processor time, and what it says, `tell` being how it tells what it counted."""
        said = io.StringIO()
        began = time.process_time()
        try:
            with redirect_stdout(said):
                yield
                tell()
        finally:
            self.invocations[function] += 1
            used = time.process_time() - began
            self.processor_seconds[function] = self.processor_seconds.get(function, 0.0) + used
            self.log_bytes += len(said.getvalue().encode())


class Functions:
    """The API and worker functions on these services, whose calls `meter` counts already."""

    def __init__(self, services: Services, meter: Meter, *, beside: Services, readable: Any) -> None:
        """`beside` are the same services, of which nothing is counted; so is `readable`, whose `read` gives objects."""
        fan_out = MemoryFanOut(readable, services.queue, self._batch)
        self._services = replace(services, fan_out=_StartsCounted(fan_out, meter, STARTS))
        self._beside = beside
        self._meter = meter
        settings = services.settings
        self._workflows = WorkflowCache(services.catalog, settings.classes)
        self._attempts = TaskRunner(settings, services.clock)
        self._batches = MapBatches(self._services, self._workflows, self._attempts)
        self._app = build(self._services)
        self._books = _Books()
        self._watch: Watch = nullcontext

    def watch(self, watch: Watch) -> None:
        """From now on have this around each invocation of the API and the worker."""
        self._watch = watch

    async def apply(self, document: Mapping[str, Any]) -> None:
        """Register a workflow. Raises RuntimeError when it is refused."""
        await self._ask("PUT", f"/v1/workflows/{document['name']}", document, expected=(200, 201))

    async def carry(self, workflow: str, given: Any = None, *, runs: int = 1, at_once: int = 1) -> Counted:
        """Submit so many runs, then invoke the worker with up to `at_once` of them until all have succeeded.

        Raises RuntimeError when one does not.
        """
        self._meter.taken()
        self._books = _Books()
        # A sandbox that has not been called for a while tells all at once; one that is busy, what it told last aside.
        tell = self._app.tell if at_once > 1 else flush
        ids = []
        for _ in range(runs):
            with self._watch("api"), self._books.invocation("api", tell):
                ids.append((await self._ask("POST", "/v1/runs", {"workflow": workflow, "input": given}))["id"])
        ended = await self._work(ids, at_once)
        return Counted(
            runs=runs,
            at_once=at_once,
            meter=self._meter.taken(),
            invocations=self._books.invocations,
            processor_seconds=self._books.processor_seconds,
            log_bytes=self._books.log_bytes,
            stored_bytes=sum(size(to_item(run)) for run in ended),
            output=ended[0].output,
        )

    async def _work(self, ids: list[str], at_once: int) -> list[Run]:
        """Invoke the worker until the runs have ended."""
        queues = [QueueName(class_name=CLASS, role=role) for role in (RESUME, LANE)]
        for _ in range(LOOKS):
            worked = False
            for queue in queues:
                while taken := await self._receive(queue, 1 if queue.role == RESUME else at_once):
                    worked = True
                    await self._invoke(taken)
            runs = [await self._run(run_id) for run_id in ids]
            if all(run.terminal for run in runs):
                if failed := [run for run in runs if run.status is not Status.SUCCEEDED]:
                    raise RuntimeError(f"{len(failed)} of {len(runs)} runs failed: {failed[0].error}")
                return runs
            if not worked:
                await asyncio.sleep(PAUSE_SECONDS)
        raise RuntimeError("a run did not end, and no message was left")

    async def _receive(self, queue: QueueName, limit: int) -> list[Received]:
        """What a mapping's poll brings. One that brings nothing is no run's: an idle deployment pays it as well."""
        seconds = visibility_seconds(self._services.settings)
        taken = await self._beside.queue.receive(queue, limit=limit, wait_seconds=0, visibility_seconds=seconds)
        if taken:
            self._meter.call("ReceiveMessage")
            self._meter.queued(sum(len(message.body) for message in taken))
        return list(taken)

    async def _invoke(self, taken: list[Received]) -> None:
        with self._watch("worker"), self._books.invocation("worker"):
            runner = MessageHandler(
                self._services, self._workflows, self._attempts, worker="counted", alone=len(taken) == 1
            )
            again = await work(
                self._services, runner, taken, seconds_left=SECONDS_LEFT, spent=lambda: bool(self._attempts.lingering)
            )
        done = [message for message in taken if message.message_id not in again]
        if done:
            await self._services.queue.delete(done)

    async def _batch(self, event: Mapping[str, Any]) -> object:
        until = self._services.clock.now() + timedelta(seconds=BATCH_SECONDS)
        # Batches go on beside each other: the processor's time is the worker's or whoever's turn it is.
        self._books.invocations["fanout"] += 1
        return await self._batches.work(Order.from_event(event), until=until)

    async def _run(self, run_id: str) -> Run:
        key = RunKey(tenant=TENANT, run_id=run_id)
        run = await self._beside.runs.get(key, now=self._beside.clock.now())
        if run is None:
            raise RuntimeError(f"{run_id} was accepted and has no row")
        return run

    async def _ask(self, method: str, path: str, body: Any, *, expected: tuple[int, ...] = (202,)) -> Any:
        event = request_event(method, path, body=json.dumps(body).encode())
        answer = await self._app.answer(event, None)
        if answer["statusCode"] not in expected:
            raise RuntimeError(f"{method} {path} was answered {answer['statusCode']}: {answer['body']}")
        return json.loads(answer["body"])


class Bucket:
    """Objects as Step Functions reads them: by clients of its own, which nobody counts."""

    def __init__(self, aws: Aws, bucket: str) -> None:
        self._client = aws.client(Client.S3)
        self._bucket = bucket

    def read(self, key: str) -> bytes:
        """What lies under a key. Raises what boto3 does."""
        data: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return data


STARTS = {"start": "StartExecution", "throttled": "DescribeExecution", "stop": "StopExecution"}
"""Step Functions' operations by the methods of a `FanOut`."""


class _StartsCounted(CountedPort):
    """A `FanOut` whose calls are counted."""

    async def going(self, execution: Any) -> bool:
        """See `FanOut.going`."""
        self._meter.call("DescribeExecution")
        await asyncio.sleep(ANSWER_SECONDS)
        found: bool = await self._port.going(execution)
        return found
