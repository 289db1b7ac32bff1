"""Writes every request of a locustfile as a JSON line. A locustfile imports this module first."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import gevent
from geventhttpclient.client import HTTPClientPool
from locust import events
from locust.contrib.fasthttp import FastHttpUser
from locust.exception import StopUser

FACTS: dict[str, Any] = json.loads(os.environ.get("FANFOLD_LOAD", "{}"))
"""What the scenario told this locustfile."""

TERMINAL = ("succeeded", "failed", "cancelled")
IDLE_SECONDS = 20.0
CONNECTIONS = 2_000
"""More than are ever used at once: a request must not wait for a connection before it counts."""

_raw = Path(FACTS["raw"]).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  # open as long as Locust runs


def bearer(token: str | None) -> dict[str, str]:
    """The header that says who calls."""
    return {"Authorization": f"Bearer {token or ''}"}


HEADERS = bearer(os.environ.get("FANFOLD_TOKEN"))


def _record(
    name: str, response_time: float, response: Any, exception: BaseException | None, context: Any, **_: Any
) -> None:
    facts = dict(context or {})
    told = getattr(response, "headers", None) or {}
    facts |= {header: told.get(header, "") for header in FACTS.get("headers", ())}
    seconds = response_time / 1000
    ended = time.time()
    begun = facts.pop("intended", ended - seconds)
    row = {
        "name": name,
        "begun": begun,
        "seconds": ended - begun,
        "status": getattr(response, "status_code", 0) or 0,
        "error": "" if exception is None else repr(exception)[:200],
        "facts": facts,
    }
    _raw.write(json.dumps(row) + "\n")


def _begin(**_: Any) -> None:
    """Locust begins: set gevent's clock, which has stood still while everything was imported.

    Locust's run time counts by it: a short one would be over before it began.
    """
    gevent.get_hub().loop.update_now()
    gevent.spawn(_drop_idle)


def _drop_idle() -> None:
    """Close connections before the service does, which has nothing to say about one that nobody used.

    To send on it in that very moment would be an error that no service makes (MiniStack closes after 75 s). The pool
    has no such option, and takes the one used last first: a burst's connections lie idle until the next burst.
    """
    while True:
        gevent.sleep(IDLE_SECONDS)
        for client in Caller.client_pool.clients.values():
            idle = client._connection_pool._socket_queue
            while not idle.empty():
                idle.get().close()


def _hear(event: Any, listener: Callable[..., None]) -> None:
    event.add_listener(listener)  # Locust's events have no types


_hear(events.request, _record)
_hear(events.init, _begin)


class Caller(FastHttpUser):
    """A user of the API with the scenario's token."""

    abstract = True
    # One for all users: some send more than one request at a time.
    client_pool = HTTPClientPool(concurrency=CONNECTIONS, connection_timeout=60, network_timeout=60)
    headers = HEADERS

    def submit(
        self, workflow: str, given: Any = None, *, tag: str, name: str = "submit", intended: float | None = None
    ) -> Any:
        """One `POST /v1/runs`; gives the response. Its time counts from when it was `intended`, if that is given."""
        key, _, value = tag.partition("=")
        body = {"workflow": workflow, "input": given, "tags": {key: value}}
        return self._ask("POST", "/v1/runs", name, intended, json=body)

    def look(self, path: str, *, name: str, intended: float | None = None) -> Any:
        """One `GET`; gives the response."""
        return self._ask("GET", path, name, intended)

    def follow(self, run_id: str, *, name: str = "follow") -> Any:
        """The run once it has ended, by long polls; gives the last response."""
        while True:
            begun = time.monotonic()
            answer = self.look(f"/v1/runs/{run_id}?wait=20", name=name)
            if answer.status_code != 200 or answer.json()["status"] in TERMINAL:
                return answer
            if time.monotonic() - begun < 1:
                gevent.sleep(0.5)  # the service had no place for one who waits: it must not be asked without end

    def tell(self, name: str, begun: float, ended: Any, **facts: Any) -> None:
        """Record something that took several requests, since `begun` (seconds since the epoch)."""
        fire: Callable[..., None] = events.request.fire
        fire(
            request_type="RUN",
            name=name,
            response_time=(time.time() - begun) * 1000,
            response_length=0,
            response=ended,
            context={**facts, "intended": begun},
            exception=None,
        )

    def _ask(self, method: str, path: str, name: str, intended: float | None, **given: Any) -> Any:
        context = {} if intended is None else {"intended": intended}
        return self.client.request(method, path, name=name, headers=self.headers, context=context, **given)


def at_fixed_rate(rate: float, seconds: float, send: Callable[[float], None]) -> None:
    """Call `send` with the time a request is meant to be sent, `rate` times a second, however long each takes.
    A slow answer delays no other request, and one that is sent late counts from when it should have been: nothing
    is left out of the figures because the service was slow (coordinated omission).
    """
    begin = time.time()
    sent = []
    for number in range(round(rate * seconds)):
        intended = begin + number / rate
        gevent.sleep(max(0.0, intended - time.time()))
        sent.append(gevent.spawn(send, intended))
    gevent.joinall(sent)


def ticks(every_seconds: float) -> Iterator[float]:
    """The times at which somebody who does one thing after the other means to look again, each as it comes.

    Who is late looks at once, and counts from when it was meant.
    """
    begin = time.time()
    for number in itertools.count(1):
        intended = begin + number * every_seconds
        gevent.sleep(max(0.0, intended - time.time()))
        yield intended


def done(user: Caller) -> NoReturn:
    """All was asked: end Locust before its time is over."""
    gevent.spawn(user.environment.runner.quit)  # not from here: it waits for this user to end
    raise StopUser


def call_ms(rng: random.Random) -> float:
    """How long a model call of the scenario takes this time: `ms` ± `jitter` (0.25: a quarter)."""
    jitter = FACTS.get("jitter", 0.0)
    ms: float = FACTS["ms"] * rng.uniform(1 - jitter, 1 + jitter)
    return round(ms, 1)
