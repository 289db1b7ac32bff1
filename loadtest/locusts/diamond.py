"""Triggers a diamond, follows it to its end, and begins again: FlowForge's own benchmark."""

from __future__ import annotations

import time

from locust import constant, events, task

from loadtest.locusts.recording import FACTS, HEADERS, Caller


class Trigger(Caller):
    """One user that has one run in flight at a time."""

    wait_time = constant(0)

    @task
    def diamond(self) -> None:
        """Submit, wait for the end, note how long all of it took."""
        begun = time.perf_counter()
        accepted = self.submit(FACTS["workflow"], tag=FACTS["tag"], name="trigger")
        if accepted.status_code != 202:
            return
        run_id = accepted.json()["id"]
        self.client.get(f"/v1/runs/{run_id}", headers=HEADERS, name="status")
        ended = self.follow(run_id)
        whole = (time.perf_counter() - begun) * 1000
        events.request.fire(
            request_type="RUN",
            name="run",
            response_time=whole,
            response_length=0,
            response=ended,
            context={"run": run_id},
            exception=None,
        )
