"""The whole service in one process and in memory: `python -m loadtest.server`. Says its address as a JSON line.

The API's own code behind a small HTTP server in the place of API Gateway, and a worker, on one event loop. It
shows what the engine costs without any AWS call; it keeps nothing, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from fanfold.explore.memory import memory_services
from functions.api import build
from functions.runtime.app import App
from functions.runtime.clock import SystemClock, SystemIds
from functions.runtime.isolation import Isolation
from functions.runtime.process import Worker
from functions.runtime.settings import ClassSettings, Settings
from loadtest.environment import differing

HOST = "127.0.0.1"
CLASS = "model"
IDENTITY = {"verdict": "ok", "tenant": "load", "scopes": "submit read operate admin", "owner": "load"}

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Gateway:
    """An ASGI application that hands calls to the API as API Gateway does, in payload format 2.0."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer one request; there is no lifespan to speak of."""
        if scope["type"] != "http":
            return
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        result = await self._app.answer(_event(scope, body), None)
        headers = [(name.lower().encode(), str(value).encode()) for name, value in result.get("headers", {}).items()]
        await send({"type": "http.response.start", "status": result["statusCode"], "headers": headers})
        await send({"type": "http.response.body", "body": (result.get("body") or "").encode()})


def _event(scope: MutableMapping[str, Any], body: bytes) -> dict[str, Any]:
    context = {"stage": "$default", "http": {"method": scope["method"], "path": scope["path"]}}
    return {
        "version": "2.0",
        "rawPath": scope["path"],
        "rawQueryString": scope["query_string"].decode(),
        "queryStringParameters": _query(scope["query_string"].decode()),
        "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
        "requestContext": {**context, "authorizer": {"lambda": IDENTITY}},
        "body": body.decode() if body else None,
        "isBase64Encoded": False,
    }


def _query(text: str) -> dict[str, str]:
    from urllib.parse import parse_qsl

    joined: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


async def run(*, concurrency: int, max_queue_depth: int, ledger: Path) -> None:
    """Serve until standard input ends."""
    classes = {CLASS: ClassSettings(max_queue_depth=max_queue_depth)}
    settings = Settings(classes=classes, chaos=True, ledger=str(ledger))
    services, _ = memory_services(settings, SystemClock(), SystemIds())
    worker = Worker(
        services,
        class_name=CLASS,
        lanes=classes[CLASS].lanes,
        concurrency=concurrency,
        isolation=Isolation(settings),
    )
    listener = socket.create_server((HOST, 0), backlog=4096)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.keep_alive_timeout = 60
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(None, sys.stdin.read)
    reading.add_done_callback(lambda _: over.set())
    working = asyncio.create_task(worker.run())
    said = {"url": f"http://{HOST}:{listener.getsockname()[1]}", "differing": differing(settings)}
    print(json.dumps(said), flush=True)
    await serve(Gateway(build(services)), config, shutdown_trigger=over.wait)  # type: ignore[arg-type]  # its own types
    worker.stop()
    await working


def main() -> None:
    """Parse the options and serve."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.server", description=__doc__)
    parser.add_argument("--concurrency", type=int, default=100, help="runs at once")
    parser.add_argument("--max-queue-depth", type=int, default=10_000, help="most queued runs; 0: any number")
    parser.add_argument("--ledger", type=Path, required=True, help="the file that chaos.effect appends to")
    asked = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(concurrency=asked.concurrency, max_queue_depth=asked.max_queue_depth, ledger=asked.ledger))


if __name__ == "__main__":
    main()
