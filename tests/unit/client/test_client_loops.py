"""One `AsyncClient` in one `asyncio.run` after another, against a server that keeps its connections open."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fanfold import AsyncClient


class Healthy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"status": "ok", "version": "0"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


# Whoever leaves a loop without closing the client leaves its sockets to the garbage collector, which says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_answers_at_once_in_every_event_loop(address: str) -> None:
    client = AsyncClient(address, retry_for_seconds=0)
    for _ in range(3):
        assert asyncio.run(client.health())["status"] == "ok"
    asyncio.run(client.close())
    del client
    gc.collect()


def test_a_closed_client_opens_new_connections(address: str) -> None:
    async def twice() -> None:
        async with AsyncClient(address, retry_for_seconds=0) as client:
            await client.health()
            await client.close()
            assert (await client.health())["status"] == "ok"

    asyncio.run(twice())
