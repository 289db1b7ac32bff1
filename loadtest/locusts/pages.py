"""Asks several services for the same things, one request after the other, in turns."""

from __future__ import annotations

import random

from locust import constant, task

from loadtest.locusts.recording import FACTS, Caller, done


class Reader(Caller):
    """One user."""

    wait_time = constant(0)

    @task
    def all(self) -> None:
        """Every question to every service, so many times, in turns."""
        rng = random.Random(FACTS["tag"])
        for turn in range(FACTS["turns"]):
            for name, paths in FACTS["questions"].items():
                # The first one asked must not always be the same: what comes first pays for what all share.
                services = rng.sample(sorted(FACTS["services"]), len(FACTS["services"]))
                for service in services:
                    path = rng.choice(paths[service])
                    url = FACTS["services"][service] + path
                    context = {"service": service, "turn": turn}
                    self.client.get(url, name=name, headers=self.headers, context=context)
        done(self)
