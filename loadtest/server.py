"""The whole service in one process and in memory: `python -m loadtest.server`. Says its address as a JSON line.

The API's own code behind a small HTTP server in the place of API Gateway, and a worker for each class, on one event
loop. It shows what the engine costs without any AWS call; it keeps nothing, and ends when its standard input does.
A token `tenant.owner` is who it says: this is no place to keep anybody out of. Every answer says in headers which
reads of records it took, where a past was asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from hypercorn.asyncio import serve
from hypercorn.config import Config

from fanfold.adapters.memory import ReadMeter
from fanfold.explore.memory import memory_services
from fanfold.service.api.app import App
from fanfold.service.clock import SystemClock, SystemIds
from fanfold.service.functions.api import build
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import Services
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.process import Worker
from loadtest.environment import differing
from loadtest.synthetic_history import past_store

HOST = "127.0.0.1"
LANES = ("high", "normal", "low")
KEEP_ALIVE_SECONDS = 86_400
TENANT = "load"
"""Who calls without a token, and whose the past is."""

CALLS_HEADER = "x-read-calls"
UNITS_HEADER = "x-read-units"
"""What the answer's reads of records were, as `GetItem=1,Query=4`, and their read units."""

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Gateway:
    """An ASGI application that hands calls to the API as API Gateway does, in payload format 2.0."""

    def __init__(self, app: App, meter: ReadMeter | None = None) -> None:
        self._app = app
        self._meter = meter

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
        if self._meter is not None:
            self._meter.calls.clear()
            self._meter.units = 0
        result = await self._app.answer(_event(scope, body), None)
        headers = [(name.lower().encode(), str(value).encode()) for name, value in result.get("headers", {}).items()]
        headers += self._reads()
        await send({"type": "http.response.start", "status": result["statusCode"], "headers": headers})
        await send({"type": "http.response.body", "body": (result.get("body") or "").encode()})

    def _reads(self) -> list[tuple[bytes, bytes]]:
        """What was read since this request came: true of it as long as requests come one after the other."""
        if self._meter is None:
            return []
        calls = ",".join(f"{name}={count}" for name, count in sorted(self._meter.calls.items()))
        return [(CALLS_HEADER.encode(), calls.encode()), (UNITS_HEADER.encode(), f"{self._meter.units:g}".encode())]


def identity(authorization: str) -> dict[str, str]:
    """Who a token `tenant.owner` says its bearer is; without one, `load`."""
    tenant, _, owner = authorization.removeprefix("Bearer").strip().partition(".")
    return {
        "verdict": "ok",
        "tenant": tenant or TENANT,
        "scopes": "submit read operate admin",
        "owner": owner or tenant or TENANT,
    }


def _event(scope: MutableMapping[str, Any], body: bytes) -> dict[str, Any]:
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    context = {"stage": "$default", "http": {"method": scope["method"], "path": scope["path"]}}
    return {
        "version": "2.0",
        "rawPath": scope["path"],
        "rawQueryString": scope["query_string"].decode(),
        "queryStringParameters": _query(scope["query_string"].decode()),
        "headers": headers,
        "requestContext": {**context, "authorizer": {"lambda": identity(headers.get("authorization", ""))}},
        "body": body.decode() if body else None,
        "isBase64Encoded": False,
    }


def request_event(method: str, path: str, *, body: bytes = b"") -> dict[str, Any]:
    """A request without a token or a query, as API Gateway hands it over."""
    return _event({"method": method, "path": path, "query_string": b"", "headers": []}, body)


def _query(text: str) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def settings_of(pools: Mapping[str, int], *, max_queue_depth: int, ledger: Path, given: Mapping[str, Any]) -> Settings:
    """The settings of a service whose classes are these pools; `given` are fields of `Settings`."""
    classes = {name: ClassSettings(lanes=LANES, max_queue_depth=max_queue_depth) for name in pools}
    return Settings(classes=classes, chaos=True, ledger=str(ledger), **given)


async def run(settings: Settings, pools: Mapping[str, int], *, past: int) -> None:
    """Serve until standard input ends; each class is worked on, so many runs at once, unless that is 0."""
    services, _ = memory_services(settings, SystemClock(), SystemIds())
    meter: ReadMeter | None = None
    if past:
        store, meter = past_store(TENANT, past, until=services.clock.now())
        services = replace(services, runs=store)
    workers = [_worker(services, name, at_once) for name, at_once in pools.items() if at_once]
    listener = socket.create_server((HOST, 0), backlog=4096)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    # A connection that is closed because it was idle, in the moment in which the driver sends on it, is an error that
    # no service makes.
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.keep_alive_max_requests = sys.maxsize
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(None, sys.stdin.read)
    reading.add_done_callback(lambda _: over.set())
    working = [asyncio.create_task(worker.run()) for worker in workers]
    _say({"url": f"http://{HOST}:{listener.getsockname()[1]}", "differing": differing(settings)})
    app = build(services)
    await serve(Gateway(app, meter), config, shutdown_trigger=over.wait)  # type: ignore[arg-type]  # its own types
    for worker in workers:
        worker.stop()
    await asyncio.gather(*working)


def _worker(services: Services, class_name: str, concurrency: int) -> Worker:
    isolation = Isolation(services.settings)
    return Worker(services, class_name=class_name, lanes=LANES, concurrency=concurrency, isolation=isolation)


def _say(facts: Mapping[str, Any]) -> None:
    """Tell whoever started this process; from then on the service's own log goes where its errors go.

    Nobody reads a second line: a pipe takes 64 KB, some two hundred ended runs, and then writing to it waits forever.
    """
    print(json.dumps(facts), flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def main() -> None:
    """Parse the options and serve."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.server", description=__doc__)
    parser.add_argument("--pools", type=json.loads, default={"model": 100}, help="runs at once by class, as JSON")
    parser.add_argument("--max-queue-depth", type=int, default=10_000, help="most queued runs; 0: any number")
    parser.add_argument("--settings", type=json.loads, default={}, help="fields of the settings, as JSON")
    parser.add_argument("--past", type=int, default=0, help="ended runs that are there already")
    parser.add_argument("--ledger", type=Path, required=True, help="the file that chaos.effect appends to")
    asked = parser.parse_args()
    settings = settings_of(
        asked.pools, max_queue_depth=asked.max_queue_depth, ledger=asked.ledger, given=asked.settings
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(settings, asked.pools, past=asked.past))


if __name__ == "__main__":
    main()
