"""The AWS clients as they behave on the wire: what is repeated, what is counted, whose clock is off."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import botocore
import pytest

from fanfold.adapters.aws.calls import Client
from fanfold.engine.errors import Unanswered, Unavailable
from fanfold.engine.record.messages import QueueName
from fanfold.service.aws_clients import Aws
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import queue_urls

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
NOON = 1_796_040_000.0


@contextmanager
def service(*answers: bytes | None) -> Iterator[tuple[str, Sequence[str]]]:
    """A local HTTP server that gives these answers in turn (None: hangs up); yields its URL and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = answers[len(asked)]
            asked.append(self.headers["X-Amz-Target"])
            if answer is None:
                self.close_connection = True
                return
            self.send_response_only(200)
            self.send_header("Date", DATE)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def aws_at(url: str, *, wall: float | Callable[[], float] = time.time) -> Iterator[Aws]:
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    aws = Aws(session, endpoint_url=url, threads=2, wall=wall if callable(wall) else lambda: wall)
    try:
        yield aws
    finally:
        aws.close()


@pytest.mark.parametrize("operation", ["put_item", "update_item"])
async def test_a_write_whose_answer_is_lost_is_not_repeated(operation: str) -> None:
    with service(None, b"{}") as (url, asked), aws_at(url) as aws, pytest.raises(Unanswered):
        await aws(Client.DYNAMODB_ONCE, operation, TableName="t")
    assert len(asked) == 1


async def test_a_send_whose_answer_is_lost_is_not_repeated() -> None:
    with service(None, b"{}") as (url, asked), aws_at(url) as aws, pytest.raises(Unanswered):
        await aws(Client.SQS_ONCE, "send_message", QueueUrl=f"{url}/q", MessageBody="{}")
    assert len(asked) == 1


async def test_a_read_whose_answer_is_lost_is_repeated_and_every_request_counted() -> None:
    with service(None, b'{"Item": {"pk": {"S": "a"}}}') as (url, asked), aws_at(url) as aws:
        answer = await aws(Client.DYNAMODB, "get_item", TableName="t", Key={"pk": {"S": "a"}})
        assert answer["Item"] == {"pk": {"S": "a"}}
        assert aws.calls == {"GetItem": 2}
    assert len(asked) == 2


async def test_a_call_that_has_become_too_late_is_not_made_also_when_it_waited_for_a_thread() -> None:
    """All threads are busy as the call is ordered; the process is frozen until one is free."""
    with service(b"{}") as (url, asked):
        release, late = threading.Event(), False
        aws = Aws(boto3.Session("test", "test", region_name="eu-central-1"), endpoint_url=url, threads=1)
        busy = asyncio.create_task(aws.call(release.wait))
        await asyncio.sleep(0)
        in_time = aws(Client.DYNAMODB_ONCE, "update_item", TableName="t", Key={}, in_time=lambda: not late)
        waiting = asyncio.create_task(in_time)
        await asyncio.sleep(0)
        late = True
        release.set()
        await busy
        with pytest.raises(Unavailable, match="too late"):
            await waiting
        late = False
        await aws(Client.DYNAMODB_ONCE, "update_item", TableName="t", Key={}, in_time=lambda: not late)
        assert len(asked) == 1
        aws.close()


async def test_a_service_that_is_not_there_was_definitely_not_asked() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, and nobody listens
        with aws_at(f"http://127.0.0.1:{unused.getsockname()[1]}") as aws, pytest.raises(Unavailable):
            await aws(Client.DYNAMODB_ONCE, "put_item", TableName="t", Item={})


@pytest.mark.parametrize("ahead", [-10, 0, 10])
async def test_every_answer_tells_how_far_the_clocks_are_apart(ahead: int) -> None:
    with service(b"{}") as (url, _), aws_at(url, wall=NOON - ahead) as aws:
        assert aws.clock_offset_seconds is None
        await aws(Client.DYNAMODB, "get_item", TableName="t", Key={})
        assert aws.clock_offset_seconds == pytest.approx(ahead, abs=0.5)


@pytest.mark.parametrize("known", [0, -10])
async def test_an_answer_that_lay_here_while_the_process_was_frozen_does_not_put_the_clock_off(known: int) -> None:
    times = iter([NOON - known, NOON - known, NOON - known, NOON - known + 7])
    with service(b"{}", b"{}") as (url, _), aws_at(url, wall=lambda: next(times)) as aws:
        await aws(Client.DYNAMODB, "get_item", TableName="t", Key={})
        await aws(Client.DYNAMODB, "get_item", TableName="t", Key={})
        assert aws.clock_offset_seconds == pytest.approx(known, abs=0.5)


async def test_a_bound_method_can_be_called_too() -> None:
    with service(b"{}") as (url, _), aws_at(url) as aws:
        answer = await aws.call(aws.client(Client.DYNAMODB).get_item, TableName="t", Key={})
        assert "Item" not in answer


def test_every_client_says_who_asks_by_a_text_that_is_made_once() -> None:
    with aws_at("http://127.0.0.1:9") as aws:
        agents = {aws.client(each).meta.config.user_agent for each in (Client.DYNAMODB, Client.SQS)}
    assert agents == {f"fanfold Botocore/{botocore.__version__}"}


def test_importing_the_wiring_makes_no_client_and_loads_no_sdk() -> None:
    code = "import sys, fanfold.service.wiring; sys.exit('boto3' in sys.modules or 'botocore.session' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_configured_queue_has_its_url() -> None:
    settings = Settings(classes={"model": ClassSettings(queues={"normal": "u1", "resume": "u2", "dead": "u3"})})
    urls = queue_urls(settings)
    assert urls[QueueName(class_name="model", role="resume")] == "u2"
    assert len(urls) == 3
