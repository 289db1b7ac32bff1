"""A deployment on moto: the real adapters on a table, queues and a bucket, with a clock that can be set."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import boto3

from fanfold.adapters import message_codec
from fanfold.engine.language.document_check import check
from fanfold.engine.language.workflow import Workflow, version_of
from fanfold.engine.ports import Execution, IfAbsent, Registered, RunKey
from fanfold.engine.record.messages import Message, QueueName, Received
from fanfold.engine.record.run import Run
from fanfold.service.api.run_reader import whole
from fanfold.service.aws_clients import Aws
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import services
from fanfold.service.worker.batch import work
from fanfold.service.worker.map_batches import MapBatches, Order
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache
from fanfold.tasks import registry
from tests.support.aws import create_stack

TENANT = "acme"
LANE = QueueName(class_name="model", role="normal")
RESUMING = QueueName(class_name="model", role="resume")
INVOCATION_SECONDS = 900
"""Less would leave no time for a step of the default length: the run would be handed over for ever."""
ROUNDS = 20
Item = dict[str, dict[str, Any]]


class ShiftedClock:
    """A `Clock` that began at any time and goes on as fast as the real one."""

    def __init__(self, start: datetime) -> None:
        self.set(start)

    def set(self, now: datetime) -> None:
        """From now on it is that late."""
        self._start, self._began = now, time.monotonic()

    def now(self) -> datetime:
        moment = self._start + timedelta(seconds=time.monotonic() - self._began)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Executions:
    """A `FanOut` of which nobody works on anything. `over`: every execution has been, and has ended."""

    over: bool = False
    started: list[Execution] = field(default_factory=list)

    async def start(self, execution: Execution) -> bool:
        self.started.append(execution)
        return not self.over

    async def going(self, execution: Execution) -> bool:
        return not self.over

    async def throttled(self, execution: Execution) -> bool:
        return False

    async def stop(self, execution: Execution) -> None:
        """Nothing goes on."""


class Tapped:
    """A `WorkQueue` that remembers what was sent, and sends nothing on: a recording decides what was under way."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sent: list[tuple[QueueName, Message]] = []

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        self.sent.append((queue, message))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Bench:
    """One deployment. `mock_aws` has to be entered before; `close` it at the end."""

    def __init__(self, session: boto3.Session, *, name: str, now: datetime) -> None:
        stack = create_stack(session, name=name)
        self.settings = Settings(
            table=stack.table,
            bucket=stack.bucket,
            classes={
                "model": ClassSettings(
                    queues={queue.role: url for queue, url in stack.urls.items()}, state_machine="of a recording"
                )
            },
            chaos=True,
        )
        # One thread: moto checks a condition and writes without a lock between, which no DynamoDB does.
        self.aws = Aws(session, threads=1)
        self.clock = ShiftedClock(now)
        self.executions = Executions()
        self.services = replace(services(self.settings, self.aws), clock=self.clock, fan_out=self.executions)
        self._urls = stack.urls
        self._dynamodb, self._s3, self._sqs = (session.client(each) for each in ("dynamodb", "s3", "sqs"))

    def close(self) -> None:
        """Close every connection."""
        self.aws.close()
        for client in (self._dynamodb, self._s3, self._sqs):
            client.close()

    # --- what is stored, raw --------------------------------------------------------------------

    def items(self) -> list[Item]:
        """Every item of the table."""
        return list(self._dynamodb.scan(TableName=self.settings.table)["Items"])

    def put_items(self, items: Sequence[Item]) -> None:
        """Put items as they are, past the adapter."""
        for item in items:
            self._dynamodb.put_item(TableName=self.settings.table, Item=item)

    def objects(self) -> dict[str, str]:
        """Every object of the bucket, by key: all of them are JSON."""
        keys = [each["Key"] for each in self._s3.list_objects_v2(Bucket=self.settings.bucket).get("Contents", [])]
        found = {}
        for key in keys:
            with self._s3.get_object(Bucket=self.settings.bucket, Key=key)["Body"] as body:
                found[key] = body.read().decode("utf-8")
        return found

    def put_objects(self, objects: Mapping[str, str]) -> None:
        """Put objects as they are."""
        for key, text in objects.items():
            self._s3.put_object(Bucket=self.settings.bucket, Key=key, Body=text.encode("utf-8"))

    def send_body(self, role: str, body: str) -> None:
        """Put a message into a queue as it is."""
        url = self._urls[QueueName(class_name="model", role=role)]
        self._sqs.send_message(QueueUrl=url, MessageBody=body)

    def waiting(self, role: str) -> int:
        """How many messages a queue holds, in whatever state."""
        names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
        url = self._urls[QueueName(class_name="model", role=role)]
        told = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(told[name]) for name in names)

    # --- what is done ---------------------------------------------------------------------------

    async def register(self, document: dict[str, Any]) -> Workflow:
        """Register a workflow document."""
        classes = {name: given.max_step_seconds for name, given in self.settings.classes.items()}
        workflow = check(document, name=None, tasks=registry.names(chaos=True), classes=classes)
        version = version_of(document)
        await self.services.catalog.register(
            TENANT,
            Registered(name=workflow.name, version=version, document=document, created_at=self.clock.now()),
        )
        return workflow

    def runner(self) -> MessageHandler:
        """A worker with nothing in its memory."""
        cache = WorkflowCache(self.services.catalog, self.settings.classes)
        return MessageHandler(
            self.services, cache, TaskRunner(self.settings, self.clock), worker="this code", alone=True
        )

    async def handle(self, queue: QueueName, message: Message) -> None:
        """A worker works on a message that need not be in any queue."""
        received = Received(
            queue=queue, message_id="m", receipt="r", body=message_codec.encode(message), message=message, receives=1
        )
        await self.runner().handle(received)

    async def work(self) -> None:
        """Worker functions work on what is in the queues until nothing can be received any more."""
        for _ in range(ROUNDS):
            taken = 0
            for queue in (RESUMING, LANE):
                batch = await self.services.queue.receive(queue, limit=10, wait_seconds=0, visibility_seconds=60)
                taken += len(batch)
                if batch:
                    await work(self.services, self.runner(), batch, seconds_left=INVOCATION_SECONDS, spent=lambda: True)
            if not taken:
                return
        raise AssertionError(f"after {ROUNDS} rounds there are still messages")

    async def batch(self, order: Mapping[str, Any]) -> None:
        """The fan-out function works on a batch of a map's items."""
        cache = WorkflowCache(self.services.catalog, self.settings.classes)
        batches = MapBatches(self.services, cache, TaskRunner(self.settings, self.clock))
        await batches.work(Order.from_event(order), until=self.clock.now() + timedelta(seconds=300))

    async def row(self, run_id: str) -> Run | None:
        """A run's record."""
        return await self.services.runs.get(RunKey(tenant=TENANT, run_id=run_id), now=self.clock.now())

    async def whole(self, run_id: str) -> Run:
        """A run's record with what of it is sealed."""
        run = await self.row(run_id)
        assert run is not None, run_id
        return await whole(self.services, run)

    async def create(self, run: Run) -> None:
        """Put a run's first version."""
        await self.services.runs.put(run, IfAbsent(), now=self.clock.now())


def orders_of(execution: Execution, objects: Mapping[str, str]) -> list[dict[str, Any]]:
    """What the state machine asks of the fan-out function, a batch at a time."""
    return [
        {
            "tenant": execution.tenant,
            "run": execution.run_id,
            "submission": execution.submission,
            "step": execution.step,
            "try": execution.try_number,
            "batch": batch,
        }
        for batch in json.loads(objects[execution.batches])
    ]
