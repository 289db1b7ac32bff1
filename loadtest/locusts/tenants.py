"""A quiet tenant that submits by the clock, and a noisy one that sends all it has at once."""

from __future__ import annotations

from locust import constant, task
from locust.exception import StopUser

from loadtest.locusts.recording import FACTS, Caller, at_fixed_rate, bearer


class Quiet(Caller):
    """A few short runs a second, in its lane."""

    wait_time = constant(0)
    fixed_count = 1
    headers = bearer(FACTS["quiet"]["token"])

    @task
    def all(self) -> None:
        """Every request of the schedule, once."""
        quiet = FACTS["quiet"]

        def send(intended: float) -> None:
            body = {"workflow": quiet["workflow"], "input": {"ms": quiet["ms"]}, "lane": quiet["lane"]}
            key, _, value = quiet["tag"].partition("=")
            self.client.post(
                "/v1/runs",
                json={**body, "tags": {key: value}},
                name="quiet",
                headers=self.headers,
                context={"intended": intended},
            )

        at_fixed_rate(quiet["rate"], FACTS["seconds"], send)
        raise StopUser


class Noisy(Caller):
    """Batches of a hundred, as fast as they are taken; nobody when there is no noise."""

    wait_time = constant(0)
    fixed_count = len(FACTS["noisy"])

    @task
    def all(self) -> None:
        """All runs of each noise, at once."""
        for noise in FACTS["noisy"]:
            key, _, value = noise["tag"].partition("=")
            run = {"workflow": noise["workflow"], "input": {"ms": noise["ms"]}, "lane": noise["lane"]}
            for begin in range(0, noise["runs"], 100):
                batch = [{**run, "tags": {key: value}}] * min(100, noise["runs"] - begin)
                headers = bearer(noise["token"])
                self.client.post("/v1/runs/batch", json={"runs": batch}, name="noisy batch", headers=headers)
        raise StopUser
