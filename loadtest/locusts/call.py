"""Submits a run, follows it to its end, and begins again."""

from __future__ import annotations

import random
import time

import gevent
from locust import constant, task

from loadtest.locusts.recording import FACTS, Caller, call_ms


class OneRun(Caller):
    """One user that has one run in flight at a time: a closed loop."""

    wait_time = constant(0)

    def on_start(self) -> None:
        """Each user draws its own latencies."""
        self.rng = random.Random(str(id(self)))

    @task
    def call(self) -> None:
        """Submit, wait for the end, note how long all of it took."""
        ms = call_ms(self.rng) if "ms" in FACTS else 0
        begun = time.time()
        accepted = self.submit(FACTS["workflow"], {"ms": ms} if ms else None, tag=FACTS["tag"])
        if accepted.status_code != 202:
            gevent.sleep(0.5)
            return
        run_id = accepted.json()["id"]
        if "looks" in FACTS:
            self.look(f"/v1/runs/{run_id}", name="status")
        gevent.sleep(ms / 1000)  # it can't have ended before; asking all that time would be a load of its own
        self.tell("run", begun, self.follow(run_id), run=run_id, ms=ms)
