"""A whole deployment in one process on one file: the API, a worker for each class, the sweeper, map batches, expiry.

The same services and the same handlers' code as on AWS; only who calls them differs. More worker processes may work on
the same file: `python -m fanfold.local.node` is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import uvicorn

from fanfold.adapters.packing import to_ms
from fanfold.adapters.sqlite import SqliteBlobs, SqliteFanOut, SqliteTable
from fanfold.adapters.sqlite.blobs import PATH
from fanfold.engine.record.messages import DEAD, QueueName
from fanfold.local.http_gateway import HttpGateway, Receive, Scope, Send, reply
from fanfold.service.api.app import App
from fanfold.service.dead_letters import revive
from fanfold.service.engine_limits import engine_limits
from fanfold.service.file_wiring import database
from fanfold.service.functions.authorizer import verdict
from fanfold.service.settings import Settings
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.task_modules import load_tasks
from fanfold.service.telemetry.reporting import configure, flush, logger
from fanfold.service.wiring import Services, services
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.map_batches import MARGIN, MapBatches, Order
from fanfold.service.worker.process import Exit, Worker
from fanfold.service.worker.stop_signals import StopSignals
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache

MINUTE_SECONDS: Final = 60.0
"""How often the sweeper looks, and what has expired is deleted."""

DEAD_POLL_SECONDS: Final = 20
DEAD_VISIBILITY_SECONDS: Final = 60

AGAIN_SECONDS: Final = 1.0
"""How long a part of the process that failed waits before it begins again, and a worker process before its next."""

DRAIN_SECONDS: Final = 5
"""How long open connections may take to end."""

_MODULE: Final = "fanfold.local.node"
"""This module, as a worker process is started."""

BACKLOG: Final = 4_096
"""Connections that may wait to be taken: a thousand callers at once are answered, not refused."""


class _Server(uvicorn.Server):
    """A server that says when it answers, and leaves the process's signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured: the node listens itself."""
        yield


class _Gateway:
    """The API, and beside it the payloads that presigned URLs lead to."""

    def __init__(self, services: Services, blobs: SqliteBlobs) -> None:
        async def authorize(event: Mapping[str, Any]) -> Mapping[str, str]:
            return await verdict(event, services.tokens, now=services.clock.now())

        self._api = HttpGateway(App(services), authorize)
        self._blobs = blobs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PATH):
            given = {"until": "", "signature": "", **dict(parse_qsl(scope["query_string"].decode("latin-1")))}
            data = await self._blobs.presigned(
                unquote(scope["path"].removeprefix(PATH)), until=given["until"], signature=given["signature"]
            )
            status, body = (403, b"{}") if data is None else (200, data)
            await reply(send, status, body, [(b"content-type", b"application/json")])
        else:
            await self._api(scope, receive, send)


class Node:
    """A deployment in this process, on the file that the settings name; `more_workers` processes work beside it."""

    def __init__(self, settings: Settings, *, more_workers: int = 0) -> None:
        self._settings = settings
        self._more_workers = more_workers
        self._services = services(settings)
        self._stop = asyncio.Event()
        self._replaced = asyncio.Event()

    def stop(self) -> None:
        """Take no new work; let every run go at its next step boundary, and end."""
        self._stop.set()

    def replace_processes(self) -> None:
        """Have the worker processes beside this one begin anew, as they end what they are at."""
        self._replaced.set()
        self._replaced = asyncio.Event()

    async def serve(self, listener: socket.socket, *, ready: Callable[[], Awaitable[None]]) -> Exit:
        """Serve until `stop`, SIGTERM or SIGINT; `ready` is awaited once calls are answered.

        `SPENT`: a task would not stop, and the process must replace itself.
        """
        configure(self._settings)
        load_tasks(self._settings, secrets=True)
        server, signals, workers = self._server(), StopSignals(), _workers(self._services)
        signals.listen(self.stop)
        background = [asyncio.create_task(part) for part in self._background()]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        working = [asyncio.create_task(worker.run()) for worker in workers]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            answering = asyncio.create_task(server.answers.wait())
            await asyncio.wait([answering, serving], return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await ready()
            # Whichever ends first ends all: a node without its API or one of its workers is none.
            await asyncio.wait([stopping, serving, *working], return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            for worker in workers:
                worker.stop()
            await asyncio.wait([serving, *working])
            for task in (stopping, *background):
                task.cancel()
            await asyncio.gather(stopping, *background, return_exceptions=True)
            signals.forget()
            flush()
        await serving
        ends = [await task for task in working]
        return Exit.SPENT if Exit.SPENT in ends and not signals.told else Exit.STOPPED

    def _server(self) -> _Server:
        assert isinstance(self._services.blobs, SqliteBlobs)
        config = uvicorn.Config(
            _Gateway(self._services, self._services.blobs),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        return _Server(config)

    def _background(self) -> Iterator[Coroutine[Any, Any, None]]:
        wired, fan_out = self._services, self._services.fan_out
        assert isinstance(fan_out, SqliteFanOut)
        yield _again(lambda: _sweep(wired))
        yield _again(lambda: _expire(wired))
        yield _again(lambda: fan_out.work_on(_batches(wired)))
        for name in self._settings.classes:
            yield _again(partial(_revive, wired, name))
        for _ in range(self._more_workers):
            yield self._process()

    async def _process(self) -> None:
        """One worker process, and the next when it ends."""
        while True:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MODULE), env={**os.environ, **self._settings.to_env()}
            )
            ended, replaced = asyncio.create_task(child.wait()), asyncio.create_task(self._replaced.wait())
            try:
                await asyncio.wait([ended, replaced], return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    child.terminate()
                elif not self._stop.is_set():
                    logger().warning("a worker process ended and is replaced", extra={"status": child.returncode})
                    await asyncio.sleep(AGAIN_SECONDS)
                await ended
            finally:
                replaced.cancel()
                if child.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        child.terminate()
                    await child.wait()


async def work(settings: Settings) -> Exit:
    """Work on all classes, without an API, until told to stop."""
    configure(settings)
    load_tasks(settings, secrets=True)
    workers, signals = _workers(services(settings)), StopSignals()

    def stop() -> None:
        for worker in workers:
            worker.stop()

    signals.listen(stop)
    working = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
    stop()
    ends = await asyncio.gather(*working)
    signals.forget()
    return Exit.SPENT if Exit.SPENT in ends and not signals.told else Exit.STOPPED


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError where the port is taken."""
    # The protocol is named for asyncio: of a socket without one it takes no connection to be TCP's, leaves Nagle's
    # algorithm on, and answers in two parts wait 40 ms for the first one's receipt.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _workers(wired: Services) -> Sequence[Worker]:
    settings = wired.settings
    return [
        Worker(
            wired,
            class_name=name,
            lanes=of_class.lanes,
            concurrency=settings.concurrency,
            isolation=Isolation(settings),
        )
        for name, of_class in settings.classes.items()
    ]


async def _again(part: Callable[[], Awaitable[None]]) -> None:
    """A part of the node for as long as it lives: what it raises is logged, and it begins again."""
    while True:
        try:
            await part()
        except Exception:
            logger().exception("a part of the node failed and begins again")
            await asyncio.sleep(AGAIN_SECONDS)


async def _sweep(wired: Services) -> None:
    limits = engine_limits(wired.settings)
    settle = QueueExpiry(wired, WorkflowCache(wired.catalog, wired.settings.classes, aside=wired.aside), limits)
    await sweep(wired, limits, now=wired.clock.now(), expire=settle)
    flush()
    await asyncio.sleep(MINUTE_SECONDS)


async def _revive(wired: Services, class_name: str) -> None:
    letters = await wired.queue.receive(
        QueueName(class_name=class_name, role=DEAD),
        limit=10,
        wait_seconds=DEAD_POLL_SECONDS,
        visibility_seconds=DEAD_VISIBILITY_SECONDS,
    )
    if letters:
        stay = await revive(wired, letters, now=wired.clock.now())
        await wired.queue.delete([letter for letter in letters if letter.message_id not in stay])


async def _expire(wired: Services) -> None:
    """Delete what DynamoDB's TTL and the bucket's lifecycle delete on AWS: little at a time, others between."""
    file = database(wired.settings.database)
    table, now = SqliteTable(file), wired.clock.now()
    kept = timedelta(days=wired.settings.retention_days + wired.settings.max_life_days)
    assert isinstance(wired.blobs, SqliteBlobs)
    while await table.expire(now) + await wired.blobs.expire(now, kept=kept):
        pass

    def forget(connection: sqlite3.Connection) -> None:
        over = to_ms(now - kept)
        connection.execute("DELETE FROM executions WHERE state <> 'open' AND begun_at < ?", (over,))

    await file.write(forget)
    await asyncio.sleep(MINUTE_SECONDS)


def _batches(wired: Services) -> Callable[[Mapping[str, Any]], Awaitable[object]]:
    """The fan-out function: works on a batch of a map's items, all of them in this process."""
    runner = TaskRunner(wired.settings, wired.clock)
    batches = MapBatches(wired, WorkflowCache(wired.catalog, wired.settings.classes, aside=wired.aside), runner)
    longest = max(of_class.max_item_seconds for of_class in wired.settings.classes.values())

    async def work_on(event: Mapping[str, Any]) -> object:
        until = wired.clock.now() + timedelta(seconds=longest) + 2 * MARGIN
        return await batches.work(Order.from_event(event), until=until)

    return work_on


def main() -> None:
    """A worker process of a node, as its environment describes it."""
    asyncio.Runner().run(work(Settings.from_env(os.environ)))
    os._exit(0)  # a task that can't be stopped would keep it alive


if __name__ == "__main__":
    main()
