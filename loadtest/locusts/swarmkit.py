"""Submits a run of one model call to SwarmKit, looks until it has ended, and begins again."""

from __future__ import annotations

import time

import gevent
from locust import constant, task

from loadtest.locusts.recording import FACTS, Caller

LOOK_SECONDS = 0.2


class OneJob(Caller):
    """One user that has one run in flight at a time: a closed loop, as `call` is for ours."""

    wait_time = constant(0)
    headers = {}  # noqa: RUF012  # it knows no tokens

    @task
    def job(self) -> None:
        """Submit, wait for the end, note how long all of it took."""
        begun = time.time()
        accepted = self._ask("POST", f"/run/{FACTS['topology']}", "submit", None, json={"input": "load"})
        if accepted.status_code != 200:
            gevent.sleep(0.5)
            return
        path = f"/jobs/{accepted.json()['job_id']}"
        gevent.sleep(0.75 * FACTS["ms"] / 1000)  # it can't have ended before
        while (ended := self.look(path, name="follow")).status_code == 200:
            if ended.json()["status"] in ("completed", "failed"):
                break
            gevent.sleep(LOOK_SECONDS)
        self.tell("run", begun, ended)
