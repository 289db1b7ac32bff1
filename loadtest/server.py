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
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from fanfold.adapters.memory import MemoryQueue, ReadMeter
from fanfold.explore.memory import memory_services
from fanfold.local.http_gateway import HttpGateway, proxy_event
from fanfold.local.node import listen
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


class Metered:
    """The API, whose answers say in headers what they read: true as long as requests come one after the other."""

    def __init__(self, app: App, meter: ReadMeter) -> None:
        self._app = app
        self._meter = meter

    async def answer(self, event: dict[str, Any], context: object) -> dict[str, Any]:
        """See `App.answer`."""
        self._meter.calls.clear()
        self._meter.units = 0
        result = await self._app.answer(event, context)
        calls = ",".join(f"{name}={count}" for name, count in sorted(self._meter.calls.items()))
        return {**result, "headers": {**result["headers"], CALLS_HEADER: calls, UNITS_HEADER: f"{self._meter.units:g}"}}


async def identity(event: Mapping[str, Any]) -> Mapping[str, str]:
    """Who a token `tenant.owner` says its bearer is; without one, `load`."""
    tenant, _, owner = event["headers"].get("authorization", "").removeprefix("Bearer").strip().partition(".")
    return {
        "verdict": "ok",
        "tenant": tenant or TENANT,
        "scopes": "submit read operate admin",
        "owner": owner or tenant or TENANT,
    }


def request_event(method: str, path: str, *, body: bytes = b"") -> dict[str, Any]:
    """A request without a token or a query, as API Gateway hands it over."""
    event = proxy_event({"method": method, "path": path, "query_string": b"", "headers": []}, body)
    scopes = {"verdict": "ok", "tenant": TENANT, "scopes": "submit read operate admin", "owner": TENANT}
    event["requestContext"]["authorizer"] = {"lambda": scopes}
    return event


def settings_of(pools: Mapping[str, int], *, max_queue_depth: int, ledger: Path, given: Mapping[str, Any]) -> Settings:
    """The settings of a service whose classes are these pools; `given` are fields of `Settings`."""
    classes = {name: ClassSettings(lanes=LANES, max_queue_depth=max_queue_depth) for name in pools}
    return Settings(classes=classes, chaos=True, ledger=str(ledger), **given)


async def run(settings: Settings, pools: Mapping[str, int], *, past: int) -> None:
    """Serve until standard input ends; each class is worked on, so many runs at once, unless that is 0."""
    clock = SystemClock()
    # A poll of an empty lane has a place of its worker, and gives it back when its time is over.
    services, _ = memory_services(settings, clock, SystemIds(), queue=MemoryQueue(clock))
    meter: ReadMeter | None = None
    if past:
        store, meter = past_store(TENANT, past, until=services.clock.now())
        services = replace(services, runs=store)
    workers = [_worker(services, name, at_once) for name, at_once in pools.items() if at_once]
    listener = listen(HOST, 0)
    app: Any = build(services) if meter is None else Metered(build(services), meter)
    server = uvicorn.Server(
        uvicorn.Config(
            HttpGateway(app, identity),
            lifespan="off",
            log_config=None,
            access_log=False,
            # A connection that is closed because it was idle, in the moment in which the driver sends on it, is an
            # error that no service makes.
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
    )

    def stop(_: object) -> None:
        server.should_exit = True

    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(stop)
    working = [asyncio.create_task(worker.run()) for worker in workers]
    _say({"url": f"http://{HOST}:{listener.getsockname()[1]}", "differing": differing(settings)})
    await server.serve(sockets=[listener])
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
