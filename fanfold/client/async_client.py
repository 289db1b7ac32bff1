"""`fanfold.client.sync_client` on asyncio: the same calls with the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from fanfold.client import base_client, calls
from fanfold.client.base_client import Exchange, Item, Listing, Send, Session, Sleep, asking, method_of

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    exchange: Callable[Concatenate[Session, P], Exchange[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncClient, /, *args: P.args, **given: P.kwargs) -> T:
        going = exchange(self, *args, **given)
        answer = None
        while True:
            try:
                wanted = going.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            answer = await self._act(wanted)

    return method_of(method, exchange)


def _listing(
    listing: Callable[Concatenate[Session, P], Listing[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    async def method(self: AsyncClient, /, *args: P.args, **given: P.kwargs) -> AsyncIterator[T]:
        going = listing(self, *args, **given)
        answer = None
        while True:
            try:
                wanted = going.send(answer)
            except StopIteration:
                return
            if isinstance(wanted, Item):
                yield wanted.value
                answer = None
            else:
                answer = await self._act(wanted)

    return method_of(method, listing, "AsyncIterator[{}]")


class AsyncClient(Session):
    """The API at `url` for one tenant's `token`, on asyncio; an asynchronous context manager."""

    health = _method(asking(calls.health))
    apply = _method(asking(calls.apply))
    submit = _method(asking(calls.submit))
    submit_many = _method(base_client.submit_many)
    get = _method(asking(calls.get))
    wait = _method(base_client.wait)
    events = _listing(base_client.events)
    runs = _listing(base_client.runs)
    cancel = _method(asking(calls.cancel))
    pause = _method(asking(calls.pause))
    resume = _method(asking(calls.resume))
    redrive = _method(asking(calls.redrive))
    signal = _method(asking(calls.signal))
    fork = _method(asking(calls.fork))
    workflows = _listing(base_client.workflows)
    workflow = _method(asking(calls.workflow))
    queues = _method(asking(calls.queues))

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retry_for_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(url, token, retry_for_seconds=retry_for_seconds)
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

    def _connections(self) -> httpx.AsyncClient:
        """The connections of the running loop: those of an earlier `asyncio.run` ended with it."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._http = httpx.AsyncClient(transport=self._transport, **self._options())
            self._loop = loop
        return self._http

    async def _act(self, wanted: Send | Sleep) -> Any:
        import httpx

        if isinstance(wanted, Sleep):
            return await self._sleep(wanted.seconds)
        try:
            return await self._connections().request(**wanted.request)
        except httpx.RequestError as error:
            return error
