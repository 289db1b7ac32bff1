"""What a run costs in calls, counted on the wire in the real API and the real worker, against the emulator."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest

from fanfold.service.aws_clients import Aws
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import services
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.process import Worker
from loadtest.aws_meter import Meter
from loadtest.cost_model_stores import metered
from loadtest.invoking import Bucket, Functions
from loadtest.shapes import FOUR, REVIEW, TINY, WIDE, Shape
from tests.support.aws import Stack, create_stack, delete_stack
from tests.support.http import Http

pytestmark = pytest.mark.emulator

WRITES = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems")
READS = ("GetItem", "BatchGetItem", "Query", "Scan")
POLLS = ("ReceiveMessage",)

DIAMOND = {
    "name": "diamond",
    "steps": {
        "seed": {"task": "core.echo"},
        "left": {"task": "core.echo", "needs": ["seed"], "input": "${steps.seed.output}"},
        "right": {"task": "core.echo", "needs": ["seed"], "input": "${steps.seed.output}"},
        "combine": {"task": "core.collect", "needs": ["left", "right"]},
    },
    "output": "${steps.combine.output}",
}


@dataclass(kw_only=True)
class Service:
    """The API and one worker, each with its own counted clients, over one stack."""

    http: Http
    api: Aws
    worker: Aws

    async def run(self, workflow: str, **body: Any) -> dict[str, Any]:
        """Submit a run and wait for its end."""
        accepted = await self.http("POST", "/v1/runs", {"workflow": workflow, **body})
        assert accepted.status == 202
        return await self.ended(accepted.json["id"])

    async def ended(self, run_id: str) -> dict[str, Any]:
        answer = await self.http("GET", f"/v1/runs/{run_id}?wait=20")
        assert answer.json["status"] in ("succeeded", "failed"), answer.json
        result: dict[str, Any] = answer.json
        return result

    def reset(self) -> None:
        self.api.calls.clear()
        self.worker.calls.clear()

    @property
    def calls(self) -> Counter[str]:
        """Calls of both by operation, without what an idle worker asks too and without the client's own polls."""
        return Counter({op: n for op, n in (self.api.calls + self.worker.calls).items() if op not in POLLS})


def _settings(stack: Stack) -> Settings:
    queues = {name.role: url for name, url in stack.urls.items()}
    return Settings(table=stack.table, bucket=stack.bucket, classes={"model": ClassSettings(queues=queues)})


@pytest.fixture
async def service(session: boto3.Session, emulator_url: str) -> AsyncIterator[Service]:
    stack = create_stack(session, emulator_url, name=f"calls-{id(object()):x}")
    settings = _settings(stack)
    api, working = (Aws(session, endpoint_url=emulator_url, threads=8) for _ in range(2))
    worker = Worker(
        services(settings, working),
        class_name="model",
        lanes=["normal"],
        concurrency=16,
        isolation=Isolation(settings),
    )
    task = asyncio.create_task(worker.run())
    service = Service(http=Http(services=services(settings, api)), api=api, worker=working)
    assert (await service.http("PUT", "/v1/workflows/diamond", DIAMOND)).status == 201
    await service.run("diamond")  # the worker's first look at a version reads its document
    # The last call of a run: its slot is given back by then.
    while not working.calls["DeleteMessageBatch"]:  # noqa: ASYNC110 - a counter of other threads
        await asyncio.sleep(0.05)
    yield service
    worker.stop()
    await task
    delete_stack(session, stack, emulator_url)


async def test_a_diamond_takes_at_most_six_writes_and_no_read_from_acceptance_to_success(service: Service) -> None:
    service.reset()
    accepted = await service.http("POST", "/v1/runs", {"workflow": "diamond"})
    submit = Counter(service.api.calls)
    await asyncio.sleep(0.5)
    assert (await service.ended(accepted.json["id"]))["status"] == "succeeded"

    # One reservation, one send, one put, and one read of the workflow's current version.
    assert submit == Counter(GetItem=1, UpdateItem=1, SendMessage=1, PutItem=1)
    working = {op: n for op, n in service.worker.calls.items() if op not in POLLS}
    puts = submit["PutItem"] + working.pop("PutItem")
    assert puts <= 6
    # The place is given back once, and the message deleted; there is nothing else.
    assert working == {"UpdateItem": 1, "DeleteMessageBatch": 1}


async def test_naming_the_version_spares_the_submit_its_only_read(service: Service) -> None:
    version = (await service.http("GET", "/v1/workflows/diamond")).json["version"]
    service.reset()
    await service.http("POST", "/v1/runs", {"workflow": "diamond", "version": version})
    assert service.api.calls == Counter(UpdateItem=1, SendMessage=1, PutItem=1)


async def test_a_repeated_key_costs_one_read_and_no_slot(service: Service) -> None:
    headers = {"Idempotency-Key": "once"}
    body = json.dumps({"workflow": "diamond"})
    first = await service.http("POST", "/v1/runs", body, headers=headers)
    service.reset()
    again = await service.http("POST", "/v1/runs", body, headers=headers)
    assert (first.status, again.status, again.json["id"]) == (202, 200, first.json["id"])
    assert service.api.calls == Counter(GetItem=1)


async def test_a_batch_of_a_hundred_shares_its_read_and_its_sends_and_a_repeat_is_one_read(service: Service) -> None:
    service.reset()
    headers = {"Idempotency-Key": "batch"}
    body = json.dumps({"runs": [{"workflow": "diamond", "input": number} for number in range(100)]})
    first = await service.http("POST", "/v1/runs/batch", body, headers=headers)
    assert [result["status"] for result in first.json["results"]] == [202] * 100
    # One look for replays, one read of the workflow, ten messages a send; a place and a row are each run's own.
    assert service.api.calls == Counter(BatchGetItem=1, GetItem=1, UpdateItem=100, SendMessageBatch=10, PutItem=100)
    service.reset()
    again = await service.http("POST", "/v1/runs/batch", body, headers=headers)
    assert [result["status"] for result in again.json["results"]] == [200] * 100
    assert service.api.calls == Counter(BatchGetItem=1)
    for result in again.json["results"]:
        assert (await service.ended(result["run"]["id"]))["status"] == "succeeded"


async def test_a_link_to_watch_a_run_costs_no_call(service: Service) -> None:
    accepted = await service.http("POST", "/v1/runs", {"workflow": "diamond"})
    run = await service.ended(accepted.json["id"])
    service.reset()
    shown = await service.http("GET", f"/v1/runs/{run['id']}")
    assert service.api.calls == Counter(GetItem=1)
    await service.http("GET", "/" + shown.json["links"]["stream"], verdict=None)
    assert service.api.calls == Counter(GetItem=2)


async def test_runs_that_come_together_share_their_receives_and_deletes(service: Service) -> None:
    service.reset()
    runs = await asyncio.gather(*(service.http("POST", "/v1/runs", {"workflow": "diamond"}) for _ in range(10)))
    for run in runs:
        assert (await service.ended(run.json["id"]))["status"] == "succeeded"
    await asyncio.sleep(0.2)
    assert service.worker.calls["PutItem"] <= 5 * 10
    # Their slots too are given back together, as far as their claims are.
    assert service.worker.calls["UpdateItem"] <= 5
    assert service.worker.calls["GetItem"] == 0
    assert service.worker.calls["DeleteMessageBatch"] <= 10


@pytest.mark.parametrize(
    ("shape", "runs"),
    [(TINY, 1), (FOUR, 1), (FOUR, 10), (REVIEW, 1), (WIDE, 1)],
    ids=lambda it: getattr(it, "name", it),
)
async def test_the_table_bills_what_the_sizes_of_the_items_say(
    session: boto3.Session, emulator_url: str, shape: Shape, runs: int
) -> None:
    """What `loadtest cost` counts in memory, for chains that are too long for an emulator, is what the services say."""
    stack = create_stack(session, emulator_url, name=f"units-{id(object()):x}")
    settings = _settings(stack)
    settings = replace(
        settings, submits_per_minute=0, classes={"model": replace(settings.classes["model"], state_machine="memory")}
    )
    found = []
    with (
        closing(Aws(session, endpoint_url=emulator_url)) as aws,
        closing(Aws(session, endpoint_url=emulator_url)) as beside,
    ):
        on_wire, in_memory = Meter(), Meter()
        on_wire.attach(aws)
        counted, uncounted = metered(settings, in_memory)
        for functions in (
            Functions(
                services(settings, aws),
                on_wire,
                beside=services(settings, beside),
                readable=Bucket(beside, settings.bucket),
            ),
            Functions(counted, in_memory, beside=uncounted, readable=uncounted.blobs),
        ):
            await functions.apply(shape.document)
            await functions.carry(shape.document["name"], shape.given)
            found.append(await functions.carry(shape.document["name"], shape.given, runs=runs, at_once=runs))
    delete_stack(session, stack, emulator_url)
    wire, memory = found
    # Batches that begin at the same time each read the plan; runs of an invocation that end apart are deleted apart.
    vague = {"GetObject"} if runs == 1 else {"GetObject", "DeleteMessageBatch", "DescribeExecution"}
    assert {n: c for n, c in wire.meter.calls.items() if n not in vague} == {
        n: c for n, c in memory.meter.calls.items() if n not in vague
    }
    assert wire.meter.write_units == memory.meter.write_units
    assert wire.meter.index_units == memory.meter.index_units
    assert wire.meter.read_units["GetItem"] == memory.meter.read_units["GetItem"]
    assert wire.meter.sent == memory.meter.sent
