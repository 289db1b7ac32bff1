"""An HTTP server in the place of API Gateway: the API behind it sees what it sees there."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from fanfold.local.http_gateway import MAX_BODY_BYTES, HttpGateway
from fanfold.local.node import listen
from fanfold.service.api.app import App
from tests.support.http import EVERY_SCOPE, TINY, memory_services


async def authorize(event: Mapping[str, Any]) -> Mapping[str, str]:
    if event["headers"].get("authorization") != "Bearer good":
        return {"verdict": "unknown"}
    return {"verdict": "ok", "tenant": "acme", "scopes": EVERY_SCOPE, "owner": "Ada"}


@pytest.fixture
def client() -> httpx.AsyncClient:
    gateway = HttpGateway(App(memory_services()), authorize)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=gateway),  # type: ignore[arg-type]  # its own types of the same shapes
        base_url="http://node",
        headers={"authorization": "Bearer good"},
    )


async def test_a_run_is_submitted_and_read(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/workflows/tiny", json=TINY)).status_code == 201
    accepted = await client.post("/v1/runs", json={"workflow": "tiny", "input": {"ü": "☃"}})
    assert accepted.status_code == 202
    run = (await client.get(f"/v1/runs/{accepted.json()['id']}?include=input")).json()
    assert run["status"] == "queued"
    assert int(accepted.headers["content-length"]) == len(accepted.content)


async def test_who_has_no_token_is_told_so(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/runs", headers={"authorization": "Bearer other"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")


async def test_repeated_and_joined_query_parameters_arrive_whole(client: httpx.AsyncClient) -> None:
    for query in ("status=queued&status=failed", "status=queued,failed"):
        assert (await client.get(f"/v1/runs?{query}")).status_code == 200
    assert (await client.get("/v1/runs?limit=no")).status_code == 422


@pytest.mark.parametrize("body", [b"\xff\xfe", b"{", b"\x00"])
async def test_a_body_that_is_no_json_is_refused_as_on_aws(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/v1/runs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


async def test_a_body_without_end_is_refused_once_it_is_too_large(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 50 * MAX_BODY_BYTES:
            sent += 1_000_000
            yield b"x" * 1_000_000

    answer = await client.post("/v1/runs", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert sent <= MAX_BODY_BYTES + 2_000_000


async def test_documentation_and_health_need_no_token(client: httpx.AsyncClient) -> None:
    client.headers.clear()
    assert json.loads((await client.get("/v1/health")).text)["status"] == "ok"
    assert (await client.get("/docs")).headers["content-type"].startswith("text/html")
    assert (await client.get("/no/such/path")).status_code == 404


async def test_a_connection_of_the_server_sends_each_part_of_an_answer_at_once() -> None:
    accepted: asyncio.Queue[int] = asyncio.Queue()

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.put_nowait(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with listen("127.0.0.1", 0) as listener:
        server = await asyncio.get_running_loop().create_server(Connection, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await asyncio.wait_for(accepted.get(), timeout=5)
            writer.close()
            await writer.wait_closed()
