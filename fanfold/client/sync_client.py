"""The typed client. `fanfold.client.async_client` has the same calls on asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from fanfold.client import base_client, calls
from fanfold.client.base_client import Exchange, Item, Listing, Send, Session, Sleep, asking, method_of

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")


def _method(exchange: Callable[Concatenate[Session, P], Exchange[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **given: P.kwargs) -> T:
        going = exchange(self, *args, **given)
        answer = None
        while True:
            try:
                wanted = going.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            answer = self._act(wanted)

    return method_of(method, exchange)


def _listing(listing: Callable[Concatenate[Session, P], Listing[T]]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    def method(self: Client, /, *args: P.args, **given: P.kwargs) -> Iterator[T]:
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
                answer = self._act(wanted)

    return method_of(method, listing, "Iterator[{}]")


class Client(Session):
    """The API at `url` for one tenant's `token`; a context manager, safe for threads.

    `retry_for_seconds` bounds how long one call is repeated. `transport` and `sleep` are for tests.
    """

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
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(url, token, retry_for_seconds=retry_for_seconds)
        import httpx

        self._http = httpx.Client(transport=transport, **self._options())
        self._sleep = sleep

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _act(self, wanted: Send | Sleep) -> Any:
        import httpx

        if isinstance(wanted, Sleep):
            return self._sleep(wanted.seconds)
        try:
            return self._http.request(**wanted.request)
        except httpx.RequestError as error:
            return error
