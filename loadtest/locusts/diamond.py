"""Triggers a diamond, follows it to its end, and begins again: FlowForge's own benchmark."""

from __future__ import annotations

import time

from locust import constant, task

from loadtest.locusts.recording import FACTS, Caller


class Trigger(Caller):
    """One user that has one run in flight at a time."""

    wait_time = constant(0)

    @task
    def diamond(self) -> None:
        """Submit, wait for the end, note how long all of it took."""
        begun = time.time()
        accepted = self.submit(FACTS["workflow"], tag=FACTS["tag"], name="trigger")
        if accepted.status_code != 202:
            return
        run_id = accepted.json()["id"]
        self.look(f"/v1/runs/{run_id}", name="status")
        ended = self.follow(run_id)
        self.tell("run", begun, ended, run=run_id)
