"""Classes and lanes on the stack: a pool's backlog delays nobody in another, better lanes overtake, none starves.

What is asserted is who was claimed before whom, by the journals. The numbers are small here; the issue's own take a
minute or two: `FANFOLD_LONG_RUNS=200 FANFOLD_SHORT_RUNS=50 FANFOLD_BACKLOG=300`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from fanfold import Client, Invalid, Unauthorized
from fanfold.local.local_stack import LocalStack
from tests.integration.test_local_stack import fanfold, no_functions, worker_process

pytestmark = pytest.mark.emulator

LONG = int(os.environ.get("FANFOLD_LONG_RUNS", "12"))
SHORT = int(os.environ.get("FANFOLD_SHORT_RUNS", "6"))
BACKLOG = int(os.environ.get("FANFOLD_BACKLOG", "40"))

AGENT = {
    "name": "agent",
    "class": "harness",
    "steps": {"work": {"task": "chaos.sleep", "input": {"ms": 120_000}}},
}
CALL = {"name": "call", "steps": {"ask": {"task": "chaos.sleep", "input": {"ms": 300}}}}


def submitted(client: Client, count: int, workflow: str, **given: Any) -> list[str]:
    results = client.submit_many([{"workflow": workflow, **given}] * count)
    return [result["run"]["id"] for result in results]


def claimed_at(client: Client, run_ids: list[str]) -> list[str]:
    """When those of the runs that were begun were first claimed."""
    runs = [client.get(run_id, steps="none") for run_id in run_ids]
    return sorted(run["started_at"] for run in runs if run["started_at"] is not None)


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_backlog_of_long_runs_in_one_class_does_not_delay_short_ones_in_the_other(client: Client) -> None:
    client.apply(AGENT)
    long = submitted(client, LONG, "agent")
    try:
        short = [client.wait(run_id, timeout=300) for run_id in submitted(client, SHORT, "tiny")]
        assert {run["status"] for run in short} == {"succeeded"}
        last_end = max(str(run["finished_at"]) for run in short)
        # No long run has ended by then, and most have not begun: nobody waited for one of them.
        assert len([at for at in claimed_at(client, long) if at < last_end]) <= LONG - SHORT
        assert all(client.get(run_id, steps="none")["finished_at"] is None for run_id in long)
        (queue,) = (queue for queue in client.queues() if queue["class"] == "harness")
        assert queue["queued"] >= SHORT
        assert queue["lanes"].keys() == {"high", "normal", "low"}
    finally:
        for run_id in reversed(long):  # those that have not begun first, or the others would make room for them
            client.cancel(run_id)


def test_high_overtakes_a_backlog_and_low_goes_on_under_it(stack: LocalStack, client: Client) -> None:
    client.apply(CALL)
    with no_functions(stack):
        normal = submitted(client, BACKLOG, "call")
        low = submitted(client, 4, "call", priority=0)
        with worker_process(stack, "--concurrency", "2") as worker:
            until(lambda: bool(claimed_at(client, normal[:1])))
            high = submitted(client, BACKLOG, "call", lane="high")
            for run_id in high:
                client.wait(run_id, timeout=300)
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=60)
        *_, last = claims = claimed_at(client, high)
        assert len(claims) == BACKLOG
        accepted = client.get(high[-1], steps="none")["created_at"]
        overtaken = BACKLOG - len([at for at in claimed_at(client, normal) if at < accepted])
        # Of ten looks one is at `normal` first, and takes as many as there are free slots: two.
        assert len([at for at in claimed_at(client, normal) if accepted <= at < last]) <= BACKLOG / 4 < overtaken
        assert len([at for at in claimed_at(client, low) if at < last]) >= 1
    for run_id in [*normal, *low]:
        assert client.wait(run_id, timeout=300)["status"] == "succeeded"


def test_a_token_uses_no_better_lane_than_it_may_and_an_unknown_one_is_named(stack: LocalStack, client: Client) -> None:
    made = fanfold(stack, "token", "create", "--tenant", "local", "--max-lane", "normal", "--json")
    token: dict[str, Any] = json.loads(made.stdout)
    assert token["max_lane"] == "normal"
    with Client(stack.api_url, token["token"], retry_for_seconds=60) as bounded:
        with pytest.raises(Unauthorized, match="may use the lanes normal, low"):
            bounded.submit("tiny", lane="high")
        with pytest.raises(Unauthorized, match="may use the lanes normal, low"):
            bounded.submit("tiny", priority=9)
        accepted = bounded.submit("tiny")
        assert accepted["estimate"]["ahead"] >= 0
        assert bounded.wait(accepted["id"], timeout=60)["lane"] == "normal"
    with pytest.raises(Invalid, match="there are: high, normal, low"):
        client.submit("tiny", lane="fast")
    assert fanfold(stack, "token", "revoke", token["id"]).returncode == 0


def test_queues_can_be_watched_in_a_pipe(stack: LocalStack) -> None:
    seen = fanfold(stack, "queues", "--watch", "--looks", "2", "--every", "0.2")
    assert (seen.returncode, len(seen.stdout.splitlines())) == (0, 4)
    assert all("high 0, normal " in line or "normal" in line for line in seen.stdout.splitlines())
