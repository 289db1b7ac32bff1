"""Asks a server that does nothing, by the clock (`rate`) or one request after the other."""

from __future__ import annotations

from locust import constant, task
from locust.exception import StopUser

from loadtest.locusts.recording import FACTS, Caller, at_fixed_rate


class Asker(Caller):
    """One user."""

    wait_time = constant(0)

    @task
    def ask(self) -> None:
        """One request, or the whole schedule."""
        if "rate" not in FACTS:
            self.look("/", name="nothing")
            return

        def send(intended: float) -> None:
            self.look("/", name="nothing", intended=intended)

        at_fixed_rate(FACTS["rate"], FACTS["seconds"], send)
        raise StopUser
