"""A team at work: sessions of turns, dashboards that list, and clients that look at the run they wait for."""

from __future__ import annotations

import itertools
import time

import gevent
from locust import constant, task
from locust.exception import StopUser

from loadtest.locusts.recording import FACTS, TERMINAL, Caller, bearer, done, ticks

_sessions = itertools.count()
_dashboards = itertools.count()
_open: set[int] = set()
"""Sessions that still work: the dashboards are looked at as long as there are any."""


class Session(Caller):
    """One session of one engineer: turns, one after the other."""

    wait_time = constant(0)
    fixed_count = FACTS["sessions"]

    def on_start(self) -> None:
        """Sessions are shared out among the engineers."""
        self.number = next(_sessions)
        _open.add(self.number)
        self.headers = bearer(FACTS["tokens"][self.number % len(FACTS["tokens"])])

    @task
    def turns(self) -> None:
        """Every turn of the session: submit, look each so many seconds, until it has ended."""
        for _ in range(FACTS["turns"]):
            begun = time.time()
            accepted = self.submit(FACTS["workflow"], {"ms": FACTS["ms"]}, tag=FACTS["tag"])
            if accepted.status_code == 202:
                self.tell("turn", begun, self._watched(accepted.json()["id"]))
        _open.discard(self.number)
        if not _open:
            done(self)
        raise StopUser

    def _watched(self, run_id: str) -> object:
        """Polls by the clock as a client without long polls does; gives the last answer."""
        for intended in ticks(FACTS["poll_seconds"]):
            answer = self.look(f"/v1/runs/{run_id}", name="status", intended=intended)
            if answer.status_code != 200 or answer.json()["status"] in TERMINAL:
                return answer
        raise AssertionError("ticks without end have ended")


class Dashboard(Caller):
    """One engineer's page: the newest runs, those that go on, and the queues, again and again."""

    wait_time = constant(0)
    fixed_count = len(FACTS["tokens"])

    def on_start(self) -> None:
        """Each engineer has one."""
        self.number = next(_dashboards)
        self.headers = bearer(FACTS["tokens"][self.number])

    @task
    def refresh(self) -> None:
        """By the clock, until the sessions are over."""
        every = FACTS["list_seconds"]
        gevent.sleep(every * self.number / len(FACTS["tokens"]))  # nobody opens a page in the same instant
        for intended in ticks(every):
            if not _open:
                raise StopUser
            self.look("/v1/runs", name="list", intended=intended)
            self.look("/v1/runs?status=queued,running,waiting,paused", name="list active")
            self.look("/v1/queues", name="queues")
