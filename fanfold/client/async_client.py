"""`fanfold.client.sync_client` on asyncio: the same calls with the same promises."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from fanfold.client import base_client, calls, operations
from fanfold.client.base_client import Session
from fanfold.client.calls import Call
from fanfold.client.results import (
    TERMINAL,
    Accepted,
    BatchResult,
    Event,
    Health,
    ListedRun,
    Queue,
    Registration,
    Run,
    SignalReceipt,
    WorkflowSummary,
    WorkflowVersions,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncClient(Session):
    """The API at `url` for one tenant's `token`, on asyncio; an asynchronous context manager."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(url, token, patience_seconds=patience_seconds)
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sleep = sleep

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def health(self) -> Health:
        """Whether the service is there."""
        return await self._ask(calls.health())

    async def apply(self, document: Mapping[str, Any] | str | bytes, *, name: str | None = None) -> Registration:
        """As `Client.apply`."""
        return await self._ask(base_client.registration(document, name))

    async def submit(
        self,
        workflow: str,
        input: Any = None,
        *,
        key: str | None = None,
        version: str | None = None,
        lane: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        delay: str | float | None = None,
    ) -> Accepted:
        """As `Client.submit`."""
        asked = calls.submission(workflow, input, version=version, lane=lane, priority=priority, tags=tags, delay=delay)
        return await self._ask(calls.submit(asked, key=key or uuid.uuid4().hex))

    async def submit_many(self, runs: Iterable[Mapping[str, Any]], *, key: str | None = None) -> list[BatchResult]:
        """As `Client.submit_many`."""
        results: list[BatchResult] = []
        for batch, batch_key in base_client.batches(runs, key or uuid.uuid4().hex):
            results += await self._submit_batch(batch, batch_key)
        return results

    async def _submit_batch(self, runs: list[Mapping[str, Any]], key: str) -> list[BatchResult]:
        begin = time.monotonic()
        results: list[BatchResult] = []
        for attempt in itertools.count(1):
            results = base_client.merged(results, await self._ask(calls.submit_many(runs, key=key)))
            pause = self._pause_of_batch(results, attempt, since=begin)
            if pause is None:
                break
            await self._sleep(pause)
        return results

    async def get(
        self, run_id: str, *, wait: int = 0, steps: str | None = None, inline: bool = False, progress: bool = False
    ) -> Run:
        """As `Client.get`."""
        return await self._ask(calls.get(run_id, wait=wait, steps=steps, inline=inline, progress=progress))

    async def wait(self, run_id: str, *, timeout: float | None = None) -> Run:
        """As `Client.wait`."""
        begin = time.monotonic()
        while True:
            asked = time.monotonic()
            run = await self.get(run_id, wait=base_client.hold(begin, timeout))
            if run["status"] in TERMINAL:
                return run
            base_client.check_time(run, begin, timeout)
            if time.monotonic() - asked < base_client.QUICK_SECONDS:
                await self._sleep(0.25)

    async def events(self, run_id: str, *, after: int = 0, follow: bool = True) -> AsyncIterator[Event]:
        """As `Client.events`."""
        while True:
            asked = time.monotonic()
            wait = calls.LONGEST_WAIT_SECONDS if follow else 0
            page = await self._ask(calls.events(run_id, after=after, wait=wait))
            for event in page["events"]:
                after = event["seq"]
                yield event
            if page["end"] or not (follow or page["events"]):
                return
            if follow and not page["events"] and time.monotonic() - asked < base_client.QUICK_SECONDS:
                await self._sleep(0.25)

    async def runs(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        tags: list[str] | None = None,
        page: int = 50,
        cursor: str | None = None,
    ) -> AsyncIterator[ListedRun]:
        """As `Client.runs`."""
        while True:
            found = await self._ask(
                calls.runs(status=status, workflow=workflow, tags=tags or [], limit=page, cursor=cursor)
            )
            for run in found["runs"]:
                yield run
            cursor = found["next_cursor"]
            if cursor is None:
                return

    async def cancel(self, run_id: str) -> Run:
        """As `Client.cancel`."""
        return await self._ask(operations.cancel(run_id))

    async def pause(self, run_id: str) -> Run:
        """As `Client.pause`."""
        return await self._ask(operations.pause(run_id))

    async def resume(self, run_id: str) -> Run:
        """As `Client.resume`."""
        return await self._ask(operations.resume(run_id))

    async def signal(self, run_id: str, name: str, payload: Any = None, *, key: str | None = None) -> SignalReceipt:
        """As `Client.signal`."""
        return await self._ask(operations.signal(run_id, name, payload, key=key or uuid.uuid4().hex))

    async def redrive(self, run_id: str, *, key: str | None = None) -> Run:
        """As `Client.redrive`."""
        return await self._ask(operations.redrive(run_id, key=key or uuid.uuid4().hex))

    async def fork(
        self,
        run_id: str,
        from_step: str,
        *,
        input: Any = operations.UNCHANGED,
        version: str | None = None,
        key: str | None = None,
    ) -> Accepted:
        """As `Client.fork`."""
        chosen = key or uuid.uuid4().hex
        return await self._ask(operations.fork(run_id, from_step, input=input, version=version, key=chosen))

    async def workflows(self, *, page: int = 50) -> AsyncIterator[WorkflowSummary]:
        """As `Client.workflows`."""
        cursor = None
        while True:
            found = await self._ask(calls.workflows(limit=page, cursor=cursor))
            for workflow in found["workflows"]:
                yield workflow
            cursor = found["next_cursor"]
            if cursor is None:
                return

    async def workflow(self, name: str, *, version: str | None = None) -> WorkflowVersions:
        """As `Client.workflow`."""
        return await self._ask(calls.workflow(name, version=version))

    async def queues(self) -> list[Queue]:
        """As `Client.queues`."""
        return await self._ask(calls.queues())

    def _connections(self) -> httpx.AsyncClient:
        """The connections of the running loop: those of an earlier `asyncio.run` ended with it."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._http = httpx.AsyncClient(transport=self._transport, **self._options())
            self._loop = loop
        return self._http

    async def _ask(self, call: Call[T]) -> T:
        import httpx

        http = self._connections()
        begin = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await http.request(**self._request(call))
            except httpx.TransportError as error:
                pause = self._pause(attempt, since=begin, answer=None)
                if pause is None:
                    raise self._not_reachable(error) from error
            except httpx.RequestError as error:  # redirected in a circle, or an answer that is not what it says
                raise self._astray(error) from error
            else:
                pause = self._pause(attempt, since=begin, answer=answer)
                if pause is None or not base_client.comes_again(answer):
                    return base_client.value_of(call, answer)
            await self._sleep(pause)
