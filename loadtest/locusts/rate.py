"""Sends submits at a fixed rate, whatever becomes of them."""

from __future__ import annotations

import random

from locust import constant, task
from locust.exception import StopUser

from loadtest.locusts.recording import FACTS, Caller, at_fixed_rate, call_ms


class AtRate(Caller):
    """One user that has any number of requests in flight: an open loop."""

    wait_time = constant(0)

    @task
    def all(self) -> None:
        """Every request of the schedule, once."""
        rng = random.Random(FACTS["tag"])

        def send(intended: float) -> None:
            given = {"ms": call_ms(rng)} if "ms" in FACTS else None
            self.submit(FACTS["workflow"], given, tag=FACTS["tag"], intended=intended)

        at_fixed_rate(FACTS["rate"], FACTS["seconds"], send)
        raise StopUser
