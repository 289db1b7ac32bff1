"""The part that both clients share: everything except sending and sleeping.

A call is an `Exchange`: a generator that yields a request or a pause, and receives the result. It repeats throttled
calls (429, 502, 503, 504), failures of the gateway (a 500 without a problem document) and calls without an answer for
`retry_for_seconds`. Then it raises an exception of `fanfold.client.errors`.
"""

from __future__ import annotations

import inspect
import itertools
import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar
from urllib.parse import urlsplit

from fanfold.client import answers, calls
from fanfold.client.calls import Call
from fanfold.client.errors import NotFanfold, NotReachable
from fanfold.client.results import TERMINAL, BatchResult, Event, ListedRun, Run, WorkflowSummary

if TYPE_CHECKING:
    import httpx

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

LONGEST_WAIT_SECONDS = 20
"""Seconds that one request may wait. API Gateway ends requests to HTTP APIs after 30 s."""

READ_TIMEOUT_SECONDS = 40.0
"""Longer than API Gateway's longest request, so that its answer comes first."""

QUICK_SECONDS = 1.0
"""A request with `wait` that returns empty sooner than this did not wait: the service has too many waiting calls."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this request (httpx's arguments). The result is the response, or the `httpx.RequestError`."""

    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait before going on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """One element of a list or stream, for the caller."""

    value: T


Exchange = Generator[Send | Sleep, Any, T]
"""A call that ends with a `T`."""

Listing = Generator[Send | Sleep | Item[T], Any, None]
"""One or more calls that yield one `T` after the other."""


class Session:
    """The state of a client. Raises ValueError for a malformed address or token."""

    def __init__(self, url: str, token: str | None, *, retry_for_seconds: float) -> None:
        check_address(url)
        self.url = url.rstrip("/") + "/"
        self.retry_for_seconds = retry_for_seconds
        self._headers = {"accept": "application/json"}
        if token:
            if not (token.isascii() and token.isprintable() and " " not in token):
                raise ValueError("a token is visible ASCII characters without spaces")
            self._headers["authorization"] = f"Bearer {token}"

    def _options(self) -> dict[str, Any]:
        # httpx takes a third of a second to import, and an import of this package alone does not need it.
        import httpx

        return {
            "headers": self._headers,
            "timeout": httpx.Timeout(READ_TIMEOUT_SECONDS, connect=5.0),
            "trust_env": not _is_local(self.url),  # a proxy can't reach this machine's own addresses
            "follow_redirects": True,  # answers over 5 MB come from the bucket
        }


def ask(session: Session, call: Call[T]) -> Exchange[T]:
    """One call with its retries."""
    import httpx

    request = {
        "method": call.method,
        "url": session.url + call.path,
        "params": dict(call.query) or None,
        "headers": dict(call.headers),
        "content": call.body,
    }
    begin = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        answer: httpx.Response | httpx.RequestError = yield Send(request)
        if isinstance(answer, httpx.Response):
            stated = answers.seconds_of(answer.headers.get("retry-after"))
            pause = _pause(session, attempt, since=begin, retry_after_seconds=stated)
            if pause is None or not answers.comes_again(answer.status_code, answer.headers.get("content-type")):
                return _value_of(call, answer)
        elif isinstance(answer, httpx.TransportError):
            pause = _pause(session, attempt, since=begin, retry_after_seconds=None)
            if pause is None:
                said = str(answer) or type(answer).__name__
                raise NotReachable(f"no answer from {session.url}: {said}") from answer
        else:  # redirected in a circle, or an answer that is not what it says
            raise NotFanfold(f"{answer}: is {session.url} a Fanfold API's address?") from answer
        yield Sleep(pause)


def _value_of(call: Call[T], answer: httpx.Response) -> T:
    return answers.value_of(
        call,
        url=str(answer.url.copy_with(query=None)).removesuffix(call.path),
        status=answer.status_code,
        body=answer.content,
        retry_after=answer.headers.get("retry-after"),
    )


def _pause(session: Session, attempt: int, *, since: float, retry_after_seconds: float | None) -> float | None:
    return answers.pause_before_repeat(
        attempt,
        retry_after_seconds=retry_after_seconds,
        spent_seconds=time.monotonic() - since,
        retry_for_seconds=session.retry_for_seconds,
        chance=random.random(),
    )


def submit_many(
    session: Session, runs: Iterable[Mapping[str, Any]], *, key: str | None = None
) -> Exchange[list[BatchResult]]:
    """Submit any number of runs, a hundred a call; each is `{workflow, input, …}`, as `submit` takes it.

    Returns a result for each, in order. A refused run raises nothing and does not affect the others. Throttled runs
    are repeated for `retry_for_seconds`. The same `key` with the same runs gives the same runs again.
    """
    results: list[BatchResult] = []
    key = key or calls.made_up_key()
    rest = iter(runs)
    while batch := list(itertools.islice(rest, calls.BATCH)):
        # No run's own key: those of the first hundred end at `key/99`.
        results += yield from _submit_batch(session, batch, f"{key}/{len(results)}" if results else key)
    return results


def _submit_batch(session: Session, runs: list[Mapping[str, Any]], key: str) -> Exchange[list[BatchResult]]:
    """Repeat a whole batch. This is safe, because runs that were accepted are replayed by their keys."""
    begin = time.monotonic()
    results: list[BatchResult] = []
    for attempt in itertools.count(1):
        found = yield from ask(session, calls.submit_batch(runs, key=key))
        # A run that was accepted before keeps its first result.
        results = [old if "run" in old else new for old, new in zip(results or found, found, strict=True)]
        again = [result["problem"] for result in results if result["status"] in answers.REPEATED]
        if not again:
            break
        stated = max(problem.get("retry_after", 0) for problem in again) or None
        pause = _pause(session, attempt, since=begin, retry_after_seconds=stated)
        if pause is None:
            break
        yield Sleep(pause)
    return results


def wait(session: Session, run_id: str, *, timeout: float | None = None) -> Exchange[Run]:
    """Wait until the run has ended. Raises TimeoutError after `timeout` seconds."""
    begin = time.monotonic()
    until = None if timeout is None else begin + timeout
    while True:
        asked = time.monotonic()
        # Never wait beyond the caller's own timeout.
        held = LONGEST_WAIT_SECONDS if until is None else int(min(LONGEST_WAIT_SECONDS, max(0.0, until - asked)))
        run = yield from ask(session, calls.get(run_id, wait=held))
        if run["status"] in TERMINAL:
            return run
        now = time.monotonic()
        if until is not None and now >= until:
            raise TimeoutError(f"run {run['id']} is still {run['status']} after {timeout:g} s")
        if now - asked < QUICK_SECONDS:
            yield Sleep(0.25)


def events(session: Session, run_id: str, *, after: int = 0, follow: bool = True) -> Listing[Event]:
    """The run's journal after a `seq`, in order and without gaps; reconnects by itself.

    With `follow` it ends with the run, else after the events that exist now.
    """
    while True:
        asked = time.monotonic()
        held = LONGEST_WAIT_SECONDS if follow else 0
        page = yield from ask(session, calls.events(run_id, after=after, wait=held))
        for event in page["events"]:
            after = event["seq"]
            yield Item(event)
        if page["end"] or not (follow or page["events"]):
            return
        if follow and not page["events"] and time.monotonic() - asked < QUICK_SECONDS:
            yield Sleep(0.25)


def runs(
    session: Session,
    *,
    status: str | None = None,
    workflow: str | None = None,
    tags: list[str] | None = None,
    page: int = 50,
    cursor: str | None = None,
) -> Listing[ListedRun]:
    """All runs, newest first, read `page` at a time (1 to 200); after the one whose `cursor` is given.

    `status` and `workflow` may name several, comma-separated; each of `tags` is `name` or `name=value`, and
    all must hold. Raises `Invalid` for an invalid filter, and for a cursor of another list.
    """
    while True:
        call = calls.runs(status=status, workflow=workflow, tags=tags or [], limit=page, cursor=cursor)
        found = yield from ask(session, call)
        yield from map(Item, found["runs"])
        cursor = found["next_cursor"]
        if cursor is None:
            return


def workflows(session: Session, *, page: int = 50) -> Listing[WorkflowSummary]:
    """The current version of every workflow, by name, read `page` at a time (1 to 200)."""
    cursor = None
    while True:
        found = yield from ask(session, calls.workflows(limit=page, cursor=cursor))
        yield from map(Item, found["workflows"])
        cursor = found["next_cursor"]
        if cursor is None:
            return


def asking(make: Callable[P, Call[T]]) -> Callable[Concatenate[Session, P], Exchange[T]]:
    """A call as an exchange."""

    def exchange(session: Session, /, *args: P.args, **given: P.kwargs) -> Exchange[T]:
        return ask(session, make(*args, **given))

    found = inspect.signature(make)
    parameters = [inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD), *found.parameters.values()]
    update_wrapper(exchange, make)
    exchange.__signature__ = found.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect's protocol
    return exchange


def method_of(method: F, exchange: Callable[..., Any], answer: str = "{}") -> F:
    """`method` with the docstring and signature of its exchange, for help() and editors."""
    update_wrapper(method, exchange)
    found = inspect.signature(exchange)
    first, *others = found.parameters.values()
    value = str(found.return_annotation).partition("[")[2][:-1]
    signature = found.replace(
        parameters=[first.replace(name="self", annotation=first.empty), *others], return_annotation=answer.format(value)
    )
    method.__signature__ = signature  # type: ignore[attr-defined]  # likewise
    return method


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def check_address(url: str) -> None:
    """Raise ValueError for a text that can't be the address of an API."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        sound = False
    if not sound or not url.isprintable() or " " in url or parts.query or parts.fragment:
        raise ValueError(f"{url[:200]!r} is no API's address: https:// (or http://), a host and perhaps a path")
