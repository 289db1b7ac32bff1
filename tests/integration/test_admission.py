"""Admission under fire: the bound is exact whoever submits, how many at once, and whoever dies meanwhile (R6)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import boto3
import httpx
import pytest

from fanfold.service.aws_clients import Aws
from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.wiring import Services, services
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.aws import create_stack, delete_stack
from tests.support.builders import a_token
from tests.support.gateway import Gateway
from tests.support.http import Http
from tests.support.stampede import environment

pytestmark = pytest.mark.emulator

BOUND = 100
TINY = {"name": "tiny", "steps": {"only": {"task": "core.echo"}}}
BODY = {"body": {"workflow": "tiny"}}
SECRET = "s" * 43


@dataclass(kw_only=True)
class Deployment:
    """A stack of its own in the emulator, and what the test sees of it."""

    endpoint: str
    session: boto3.Session
    table: Any
    settings: Settings

    @contextmanager
    def services(self) -> Iterator[Services]:
        aws = Aws(self.session, endpoint_url=self.endpoint, threads=16)
        yield services(self.settings, aws)
        aws.close()

    def process(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.stampede", *arguments],
            env=environment(self.settings, self.endpoint),
            stdout=subprocess.PIPE if arguments[0] == "submit" and arguments[2] != "0" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def stampede(self, *, processes: int, threads: int, each: int, bodies: list[Any]) -> list[dict[str, Any]]:
        """What so many processes were answered in all."""
        # One body per process: Powertools keeps the current event on a class, which threads share and Lambda has not.
        crowd = [
            self.process("submit", str(threads), str(each), json.dumps([bodies[number % len(bodies)]]))
            for number in range(processes)
        ]
        answers: list[dict[str, Any]] = []
        for one in crowd:
            told, _ = one.communicate(timeout=60)
            assert one.returncode == 0
            answers += json.loads(told.splitlines()[-1])
        return answers

    def rows(self) -> Counter[str]:
        """The runs by status letter, in one call: all at one moment."""
        found = self.table.scan(
            TableName=self.settings.table, ConsistentRead=True, FilterExpression="attribute_exists(s)"
        )
        assert "LastEvaluatedKey" not in found
        return Counter(item["s"]["S"] for item in found["Items"])

    async def slots(self, on: Services) -> tuple[int, int]:
        """Places taken, in all and by the sum of the hours."""
        return (await on.slots.load("model")).depth, sum((await on.slots.held("model")).values())


@pytest.fixture
async def deployment(session: boto3.Session, emulator_url: str) -> AsyncIterator[Deployment]:
    stack = create_stack(session, emulator_url, name=f"admission-{uuid.uuid4().hex[:10]}")
    queues = {name.role: url for name, url in stack.urls.items()}
    classes = {"model": ClassSettings(queues=queues, max_queue_depth=BOUND)}
    settings = Settings(table=stack.table, bucket=stack.bucket, classes=classes, log_level="ERROR")
    table = session.client("dynamodb", endpoint_url=emulator_url)
    deployment = Deployment(endpoint=emulator_url, session=session, table=table, settings=settings)
    with deployment.services() as on:
        assert (await Http(services=on)("PUT", "/v1/workflows/tiny", TINY)).status == 201
    yield deployment
    table.close()
    delete_stack(session, stack, emulator_url)


def told_when_to_come_back(answer: dict[str, Any]) -> bool:
    """Whether a refusal is a clean 429."""
    headers = {name.lower(): value for name, value in answer["headers"].items()}
    problem = json.loads(answer["body"])
    return (
        headers["content-type"] == "application/problem+json"
        and problem["type"] == "queue-full"
        and 1 <= int(headers["retry-after"]) <= 60
    )


async def drained(deployment: Deployment, on: Services) -> None:
    """A worker works until nothing is queued or running."""
    worker = deployment.process("work")
    try:
        until = time.monotonic() + 30
        while (rows := deployment.rows()) and set(rows) - {"s"}:
            assert time.monotonic() < until, rows
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)  # the last places are on their way
    finally:
        worker.kill()
        worker.wait()


async def test_sixty_four_threads_in_four_processes_get_exactly_the_bound(deployment: Deployment) -> None:
    answers = await asyncio.to_thread(deployment.stampede, processes=4, threads=16, each=4, bodies=[BODY])
    statuses = Counter(answer["statusCode"] for answer in answers)
    assert statuses == {202: BOUND, 429: 256 - BOUND}
    assert all(told_when_to_come_back(answer) for answer in answers if answer["statusCode"] == 429)
    with deployment.services() as on:
        assert deployment.rows() == {"q": BOUND}
        assert await deployment.slots(on) == (BOUND, BOUND)
        await drained(deployment, on)
        assert deployment.rows() == {"s": BOUND}
        assert await deployment.slots(on) == (0, 0)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """One thread per connection."""

    daemon_threads = True
    request_queue_size = 64


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def served(gateway: Gateway) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), _Quiet)
    server.set_app(gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_sixteen_clients_over_http_get_exactly_the_bound(deployment: Deployment) -> None:
    with deployment.services() as on:
        digest = hashlib.sha256(SECRET.encode()).hexdigest()
        await on.tokens.put(a_token(id="0" * 15 + "1", sha256=digest))
        headers = {"Authorization": f"Bearer ff_{'0' * 15}1_{SECRET}"}

        def client(url: str) -> list[tuple[int, str | None]]:
            with httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False) as http:
                answers = [http.post("/v1/runs", json=BODY["body"]) for _ in range(10)]
            return [(answer.status_code, answer.headers.get("retry-after")) for answer in answers]

        gateway = Gateway(on, instances=16)

        def crowd() -> list[tuple[int, str | None]]:
            try:
                with served(gateway) as url, ThreadPoolExecutor(16) as pool:
                    return [answer for one in pool.map(client, [url] * 16) for answer in one]
            finally:
                gateway.close()

        answers = await asyncio.to_thread(crowd)
        assert Counter(status for status, _ in answers) == {202: BOUND, 429: 160 - BOUND}
        assert all(int(after or 0) >= 1 for status, after in answers if status == 429)
        assert deployment.rows() == {"q": BOUND}
        assert await deployment.slots(on) == (BOUND, BOUND)


async def test_one_key_and_one_body_from_everywhere_is_one_run_with_one_slot(deployment: Deployment) -> None:
    bodies = [{"key": "once", **BODY}]
    answers = await asyncio.to_thread(deployment.stampede, processes=2, threads=16, each=2, bodies=bodies)
    statuses = Counter(answer["statusCode"] for answer in answers)
    assert statuses == {202: 1, 200: 63}
    assert len({json.loads(answer["body"])["id"] for answer in answers}) == 1
    with deployment.services() as on:
        assert deployment.rows() == {"q": 1}
        assert await deployment.slots(on) == (1, 1)


async def test_one_key_with_two_bodies_is_one_run_and_a_conflict_for_the_other_body(deployment: Deployment) -> None:
    bodies = [{"key": "once", "body": {"workflow": "tiny", "input": n}} for n in (1, 2)]
    answers = await asyncio.to_thread(deployment.stampede, processes=2, threads=16, each=2, bodies=bodies)
    statuses = Counter(answer["statusCode"] for answer in answers)
    assert statuses == {202: 1, 200: 31, 409: 32}
    with deployment.services() as on:
        assert deployment.rows() == {"q": 1}
        assert await deployment.slots(on) == (1, 1)
        await drained(deployment, on)
        assert deployment.rows() == {"s": 1}
        assert await deployment.slots(on) == (0, 0)


async def test_while_api_processes_and_workers_are_killed_the_bound_holds_and_leaks_heal(
    deployment: Deployment,
) -> None:
    bound = 20
    only = replace(deployment.settings.classes["model"], max_queue_depth=bound)
    deployment.settings = replace(
        deployment.settings,
        classes={"model": only},
        lease_seconds=3,
        clock_skew_seconds=0.5,
        slot_hour_seconds=2,
        slot_return_seconds=2,
        slot_void_seconds=4,
        repair_after_seconds=8,
        repair_again_seconds=3.5,
    )
    chance = random.Random(4)
    submit = ("submit", "8", "0", json.dumps([BODY]))
    crowd = [deployment.process(*submit) for _ in range(2)] + [deployment.process("work") for _ in range(2)]
    try:
        most = await asyncio.to_thread(under_fire, deployment, crowd, chance, submit)
    finally:
        for process in crowd:
            process.kill()
            process.wait()
    assert 0 < most <= bound
    worker = deployment.process("work")
    with deployment.services() as on:
        limits = engine_limits(on.settings)
        settle = QueueExpiry(on, WorkflowCache(on.catalog, on.settings.classes), limits)
        until = time.monotonic() + 22
        healed = 0
        try:
            while time.monotonic() < until:
                healed += (await sweep(on, limits, now=on.clock.now(), expire=settle)).slots_repaired
                rows = deployment.rows()
                assert rows["q"] <= bound
                if not set(rows) - {"s"} and await deployment.slots(on) == (0, 0):
                    break
                await asyncio.sleep(0.5)
        finally:
            worker.kill()
            worker.wait()
        assert not set(deployment.rows()) - {"s"}
        assert await deployment.slots(on) == (0, 0), f"{healed} places were healed"


def under_fire(deployment: Deployment, crowd: list[Any], chance: random.Random, submit: tuple[str, ...]) -> int:
    """Kills one of the crowd now and then, and puts another in its place; the most rows that were ever queued."""
    most, begun = 0, time.monotonic()
    while not deployment.rows() and time.monotonic() < begun + 15:
        time.sleep(0.1)  # they get to their feet
    until, strike = time.monotonic() + 10, time.monotonic() + 0.5
    while time.monotonic() < until:
        most = max(most, deployment.rows()["q"])
        if time.monotonic() > strike:
            slot = chance.randrange(len(crowd))
            crowd[slot].kill()
            crowd[slot].wait()
            crowd[slot] = deployment.process(*submit) if slot < 2 else deployment.process("work")
            strike = time.monotonic() + 1.5
    return most
