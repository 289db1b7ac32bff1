"""The typed client. `fanfold.client.async_client` has the same calls on asyncio.

It repeats what was refused for load (429, 502, 503, 504), failed in the gateway (a 500 that is no problem of
the service's) or was not answered, as long as `patience_seconds` allows, and raises what is left as an
exception of `fanfold.client.errors`.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
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


class Client(Session):
    """The API at `url` for one tenant's `token`; a context manager, safe for threads.

    `patience_seconds` bounds how long one call is repeated. `transport` and `sleep` are for tests.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(url, token, patience_seconds=patience_seconds)
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

    def health(self) -> Health:
        """Whether the service is there."""
        return self._ask(calls.health())

    def apply(self, document: Mapping[str, Any] | str | bytes, *, name: str | None = None) -> Registration:
        """Register a workflow: a mapping, or YAML or JSON text.

        Raises `Invalid` with every reason at once, ValueError when the document has no name.
        """
        return self._ask(base_client.registration(document, name))

    def submit(
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
        """Submit a run. With the same `key` again it is the same run; without one the client makes one up.

        `priority` (0 to 9) stands instead of a `lane`; `delay` is seconds, or a duration such as `30s`.
        Raises `Refused` when there is no room, `NotFound` for an unknown workflow, `StateConflict`
        for a key that came before with another body, ValueError for a key that is not 1–255 visible ASCII characters.
        """
        asked = calls.submission(workflow, input, version=version, lane=lane, priority=priority, tags=tags, delay=delay)
        return self._ask(calls.submit(asked, key=key or uuid.uuid4().hex))

    def submit_many(self, runs: Iterable[Mapping[str, Any]], *, key: str | None = None) -> list[BatchResult]:
        """Submit any number of runs, a hundred a call; each is `{workflow, input, …}`, as `submit` takes it.

        Gives a result for each, in order: one that is refused spoils no other, and raises nothing. What is
        refused for load is repeated as long as `patience_seconds` allows. With the same `key` and the
        same runs again, they are the same runs.
        """
        results: list[BatchResult] = []
        for batch, batch_key in base_client.batches(runs, key or uuid.uuid4().hex):
            results += self._submit_batch(batch, batch_key)
        return results

    def _submit_batch(self, runs: list[Mapping[str, Any]], key: str) -> list[BatchResult]:
        begin = time.monotonic()
        results: list[BatchResult] = []
        for attempt in itertools.count(1):
            results = base_client.merged(results, self._ask(calls.submit_many(runs, key=key)))
            pause = self._pause_of_batch(results, attempt, since=begin)
            if pause is None:
                break
            self._sleep(pause)
        return results

    def get(
        self, run_id: str, *, wait: int = 0, steps: str | None = None, inline: bool = False, progress: bool = False
    ) -> Run:
        """The run as it is, or as it has become within `wait` seconds (at most 25) if it ends by then.

        With `progress` the items of its open maps are counted, which costs the service a read for each.
        """
        return self._ask(calls.get(run_id, wait=wait, steps=steps, inline=inline, progress=progress))

    def wait(self, run_id: str, *, timeout: float | None = None) -> Run:
        """The run once it has ended. Raises TimeoutError when that takes longer than `timeout` seconds."""
        begin = time.monotonic()
        while True:
            asked = time.monotonic()
            run = self.get(run_id, wait=base_client.hold(begin, timeout))
            if run["status"] in TERMINAL:
                return run
            base_client.check_time(run, begin, timeout)
            if time.monotonic() - asked < base_client.QUICK_SECONDS:
                self._sleep(0.25)

    def events(self, run_id: str, *, after: int = 0, follow: bool = True) -> Iterator[Event]:
        """The run's journal after a `seq`, in order and without gaps; reconnects by itself.

        With `follow` it ends when the run has, else with what is there now.
        """
        while True:
            asked = time.monotonic()
            page = self._ask(calls.events(run_id, after=after, wait=calls.LONGEST_WAIT_SECONDS if follow else 0))
            for event in page["events"]:
                after = event["seq"]
                yield event
            if page["end"] or not (follow or page["events"]):
                return
            if follow and not page["events"] and time.monotonic() - asked < base_client.QUICK_SECONDS:
                self._sleep(0.25)

    def runs(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        tags: list[str] | None = None,
        page: int = 50,
        cursor: str | None = None,
    ) -> Iterator[ListedRun]:
        """All runs, newest first, read `page` at a time (1 to 200); after the one whose `cursor` is given.

        `status` and `workflow` may name several, comma-separated; each of `tags` is `name` or `name=value`, and
        all must hold. Raises `Invalid` for a filter that makes no sense, and for another listing's cursor.
        """
        while True:
            found = self._ask(calls.runs(status=status, workflow=workflow, tags=tags or [], limit=page, cursor=cursor))
            yield from found["runs"]
            cursor = found["next_cursor"]
            if cursor is None:
                return

    def cancel(self, run_id: str) -> Run:
        """Cancel the run: what runs is told to stop. Raises `StateConflict` when it ended otherwise."""
        return self._ask(operations.cancel(run_id))

    def pause(self, run_id: str) -> Run:
        """Start no new step of the run, and let its deadlines stand still. Raises `StateConflict` when it has ended."""
        return self._ask(operations.pause(run_id))

    def resume(self, run_id: str) -> Run:
        """Let a paused run go on. Raises `StateConflict` when it has ended."""
        return self._ask(operations.resume(run_id))

    def signal(self, run_id: str, name: str, payload: Any = None, *, key: str | None = None) -> SignalReceipt:
        """Give the run a signal: `payload`, any JSON, becomes the output of the wait that takes it.

        With the same `key` again it is the same signal. Raises `StateConflict` when the run has ended or
        holds a hundred signals nobody took.
        """
        return self._ask(operations.signal(run_id, name, payload, key=key or uuid.uuid4().hex))

    def redrive(self, run_id: str, *, key: str | None = None) -> Run:
        """Let a failed or cancelled run go on; what succeeded keeps its result.

        With the same `key` again it is the same redrive. Raises `StateConflict` for a run in another state.
        """
        return self._ask(operations.redrive(run_id, key=key or uuid.uuid4().hex))

    def fork(
        self,
        run_id: str,
        from_step: str,
        *,
        input: Any = operations.UNCHANGED,
        version: str | None = None,
        key: str | None = None,
    ) -> Accepted:
        """Start a new run that takes over everything that is not downstream of `from_step`.

        Raises `Invalid` for a step there is none of, `Refused` when there is no room.
        """
        chosen = key or uuid.uuid4().hex
        return self._ask(operations.fork(run_id, from_step, input=input, version=version, key=chosen))

    def workflows(self, *, page: int = 50) -> Iterator[WorkflowSummary]:
        """The current version of every workflow, by name, read `page` at a time (1 to 200)."""
        cursor = None
        while True:
            found = self._ask(calls.workflows(limit=page, cursor=cursor))
            yield from found["workflows"]
            cursor = found["next_cursor"]
            if cursor is None:
                return

    def workflow(self, name: str, *, version: str | None = None) -> WorkflowVersions:
        """A workflow's document, current or of one version, and all its versions. Raises `NotFound`."""
        return self._ask(calls.workflow(name, version=version))

    def queues(self) -> list[Queue]:
        """How full each class is."""
        return self._ask(calls.queues())

    def _ask(self, call: Call[T]) -> T:
        import httpx

        begin = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            answer: httpx.Response | None = None
            try:
                answer = self._http.request(**self._request(call))
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
            self._sleep(pause)
