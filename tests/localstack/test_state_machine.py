"""The state machine of wide maps, as it is deployed into an emulator, created and run in LocalStack's Step Functions.

LocalStack has no Lambda here: what the function answers is in `mocks.json`, by the case that an execution is started
for. Where the orders are looked at, the function's place is taken by a state that answers what it is given.
"""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fanfold.adapters.aws.calls import Client
from fanfold.adapters.aws.sqs import SqsQueue
from fanfold.adapters.aws.stepfunctions import StepFunctionsFanOut, execution_input
from fanfold.engine.language.maps import ANSWERS, Batch
from fanfold.engine.ports import Execution
from fanfold.engine.record.messages import RESUME, QueueName, Wake
from fanfold.service.aws_clients import Aws
from fanfold.service.worker.map_batches import Order
from tests.infra.conftest import ONE_CLASS, Synthesised, synthesise
from tests.support.localstack import WANTED

pytestmark = [
    pytest.mark.localstack,
    pytest.mark.skipif(not WANTED, reason="make test-localstack starts the LocalStack that it needs"),
]

MACHINE = "fanfold-maps"
"""Its name in `mocks.json`."""

ROLE = "arn:aws:iam::000000000000:role/maps"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:batch:live"
TIMEOUT_SECONDS = 60
"""A batch that finds no room is asked for for up to 15 s."""

BATCH = Batch(first=50, end=53)
EXECUTION = Execution(
    name="",
    class_name="model",
    tenant="acme",
    run_id="r1",
    submission="s1",
    step="files",
    try_number=2,
    batches="acme/r1/s1/files/map.batches",
    batches_at_once=4,
)
WAKE = Wake(tenant="acme", run_id="r1", submission="s1", class_name="model", map_step="files")
ORDER = Order(tenant="acme", run_id="r1", submission="s1", step="files", try_number=2, batch=BATCH)

Definition = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A queue that is rung in, a bucket with the list of batches, and the machine's definition that names both."""

    aws: Aws
    definition: Definition
    urls: Mapping[QueueName, str]

    async def create(self, definition: Definition, name: str = "") -> str:
        """The ARN of a state machine of that definition. Raises `Refused` for one that is not taken."""
        made = await self.aws(
            Client.STEP_FUNCTIONS,
            "create_state_machine",
            name=name or f"echo-{uuid.uuid4().hex}",
            roleArn=ROLE,
            definition=json.dumps(definition),
        )
        return str(made["stateMachineArn"])

    async def run(self, machine: str, case: str = "") -> tuple[Any, bool, Wake]:
        """One execution to its end: what its batches answered, whether any was never begun, and how it signalled."""
        execution = replace(EXECUTION, name=f"run-{uuid.uuid4().hex}", run_id=f"r-{uuid.uuid4().hex}")
        await self.aws(
            Client.STEP_FUNCTIONS,
            "start_execution",
            stateMachineArn=f"{machine}#{case}" if case else machine,
            name=execution.name,
            input=execution_input(execution),
        )
        fan_out = StepFunctionsFanOut(self.aws, {"model": machine})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            going = True
            while going:
                await asyncio.sleep(0.2)
                going = await fan_out.going(execution)
        arn = f"{machine.replace(':stateMachine:', ':execution:')}:{execution.name}"
        ended = await self.aws(Client.STEP_FUNCTIONS, "describe_execution", executionArn=arn)
        assert ended["status"] == "SUCCEEDED", (ended["status"], ended.get("error"), ended.get("cause"))
        return json.loads(ended["output"])[ANSWERS], await fan_out.throttled(execution), await self._rung(execution)

    async def _rung(self, execution: Execution) -> Wake:
        queue = SqsQueue(self.aws, self.urls)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                for each in await queue.receive(next(iter(self.urls)), limit=10, wait_seconds=1, visibility_seconds=1):
                    if isinstance(each.message, Wake) and each.message.run_id == execution.run_id:
                        await queue.delete([each])
                        return replace(each.message, run_id=EXECUTION.run_id)


def resolved(stack: Synthesised, value: Any, *, queue: str, bucket: str) -> str:
    """A text of the template with what would be deployed in the place of its references."""
    kinds = {name: resource["Type"] for name, resource in stack.template["Resources"].items()}
    of_kind = {"AWS::SQS::Queue": queue, "AWS::S3::Bucket": bucket, "AWS::Lambda::Alias": FUNCTION}
    match value:
        case str():
            return value
        case {"Ref": "AWS::Partition"}:
            return "aws"
        case {"Ref": str(name)}:
            return of_kind[kinds[name]]
        case {"Fn::Join": ["", parts]}:
            return "".join(resolved(stack, part, queue=queue, bucket=bucket) for part in parts)
        case _:
            raise AssertionError(f"no text: {value}")


@pytest.fixture(scope="module")
def stack() -> Synthesised:
    """What is deployed into an emulator."""
    return synthesise({"local": "true", "classes": ONE_CLASS})


@pytest.fixture
async def deployed(aws: Aws, stack: Synthesised) -> Deployed:
    name = f"maps-{uuid.uuid4().hex[:12]}"
    await aws(Client.S3, "create_bucket", Bucket=name)
    listed = json.dumps([{"from": BATCH.first, "to": BATCH.end}])
    await aws(Client.S3, "put_object", Bucket=name, Key=EXECUTION.batches, Body=listed.encode())
    url = (await aws(Client.SQS, "create_queue", QueueName=name))["QueueUrl"]
    (machine,) = stack.all("AWS::StepFunctions::StateMachine").values()
    definition = json.loads(resolved(stack, machine["DefinitionString"], queue=url, bucket=name))
    return Deployed(aws=aws, definition=definition, urls={QueueName(class_name="model", role=RESUME): url})


def batch_states(definition: Definition) -> Definition:
    states: Definition = definition["States"]["Batches"]["ItemProcessor"]["States"]
    return states


async def test_every_end_of_a_batch_comes_back_as_its_words_and_rings(deployed: Deployed) -> None:
    machine = await deployed.create(deployed.definition, MACHINE)
    cases = ("worked", "busy", "died", "poison", "busy-items")
    try:
        ends = await asyncio.gather(*(deployed.run(machine, case) for case in cases))
    finally:
        await deployed.aws(Client.STEP_FUNCTIONS, "delete_state_machine", stateMachineArn=machine)
    answers = {case: (answer, throttled) for case, (answer, throttled, _) in zip(cases, ends, strict=True)}
    poison, _ = answers.pop("poison")
    # Of a batch whose function died there is a word of each item; which of them met the second death is chance.
    assert sorted(poison[0]) == ["dead", "recorded", "recorded"]
    assert answers == {
        "worked": (["recorded"], False),
        "busy": (["throttled"], True),
        "died": ([["recorded"] * 3], False),
        "busy-items": ([["throttled"] * 3], True),
    }
    assert [wake for _, _, wake in ends] == [WAKE] * len(cases)


async def test_the_function_is_given_orders_that_it_reads(deployed: Deployed) -> None:
    echoing = copy.deepcopy(deployed.definition)
    batch_states(echoing)["Work on a batch"] = {"Type": "Pass", "End": True}
    ((order,), throttled, wake) = await deployed.run(await deployed.create(echoing))
    assert replace(Order.from_event(order), run_id=ORDER.run_id) == ORDER
    assert (throttled, wake) == (False, WAKE)


async def test_items_of_a_batch_that_died_are_given_as_batches_of_one(deployed: Deployed) -> None:
    echoing = copy.deepcopy(deployed.definition)
    batch_states(echoing)["Work on a batch"] = {"Type": "Pass", "Next": "Apart"}
    batch_states(echoing)["Items"]["ItemProcessor"]["States"]["Work on an item"] = {"Type": "Pass", "End": True}
    (orders,), _, _ = await deployed.run(await deployed.create(echoing))
    of_items = [replace(Order.from_event(order), run_id=ORDER.run_id) for order in orders]
    assert of_items == [replace(ORDER, batch=Batch(first=n, end=n + 1)) for n in range(BATCH.first, BATCH.end)]
