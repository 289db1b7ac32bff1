"""Waits and operators' moves through the whole stack: HTTP API, queues, worker functions, table."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from fanfold import Client, Invalid, StateConflict
from fanfold.client.results import Run
from fanfold.local.local_stack import LocalStack
from tests.integration.test_local_stack import fanfold

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True)
def _registered(client: Client) -> None:
    slow = {"task": "chaos.sleep", "input": {"ms": 4_000}, "timeout": "60s"}
    client.apply({"name": "slow", "steps": {"a": slow, "b": {**slow, "needs": ["a"]}}})


def reaches(client: Client, run_id: str, status: str, *, seconds: float = 30) -> Run:
    """The run once it has that status."""
    until = time.monotonic() + seconds
    while (run := client.get(run_id))["status"] != status:
        assert time.monotonic() < until, f"the run is {run['status']}, not {status}"
        time.sleep(0.1)
    return run


def running(client: Client, run_id: str, step: str) -> None:
    """Returns once the step runs."""
    for event in client.events(run_id):
        if (event["type"], event.get("step")) == ("step.started", step):
            return


def at(event: Any) -> datetime:
    return datetime.fromisoformat(event["at"])


def test_an_approval_is_acted_on_at_once_and_says_who_decided_and_why(client: Client) -> None:
    run_id = client.submit("approval", {"what": "the release"})["id"]
    reaches(client, run_id, "waiting")
    time.sleep(1)  # the worker that suspended it is done
    client.signal(run_id, "approve", {"approved": True, "by": "Grace", "why": "it is tested"})
    run = client.wait(run_id, timeout=60)
    assert run["output"] == {"published": True, "by": "Grace", "why": "it is tested"}
    events = list(client.events(run_id))
    received = next(event for event in events if event["type"] == "signal.received")
    began = next(event for event in events if event["type"] == "step.started" and event.get("step") == "publish")
    assert received["payload"] == {"approved": True, "by": "Grace", "why": "it is tested"}  # type: ignore[typeddict-item]  # what it is about
    waited = (at(began) - at(received)).total_seconds()
    assert waited < 1, "there is no interval in it; an idle stack takes a tenth of this"


def test_a_running_run_is_cancelled_within_a_lease(client: Client) -> None:
    run_id = client.submit("slow")["id"]
    running(client, run_id, "a")
    assert client.cancel(run_id)["status"] in ("running", "cancelled")
    run = reaches(client, run_id, "cancelled")
    assert run["steps"]["b"]["status"] == "pending"
    assert client.cancel(run_id)["status"] == "cancelled"
    with pytest.raises(StateConflict, match="cancelled"):
        client.pause(run_id)


def test_a_paused_run_starts_no_step_until_it_is_resumed(client: Client) -> None:
    run_id = client.submit("slow")["id"]
    running(client, run_id, "a")
    assert client.pause(run_id)["status"] == "paused"
    until = time.monotonic() + 30
    while client.get(run_id)["steps"]["a"]["status"] != "succeeded":
        assert time.monotonic() < until
        time.sleep(0.2)
    time.sleep(2)
    run = client.get(run_id)
    assert (run["status"], run["steps"]["b"]["status"]) == ("paused", "pending")
    client.resume(run_id)
    run = client.wait(run_id, timeout=60)
    assert (run["status"], run["steps"]["a"]["attempts"]) == ("succeeded", 1)


def test_a_nightly_batch_that_failed_is_redriven_and_extracts_nothing_twice(client: Client) -> None:
    run_id = client.submit("nightly", {"day": "Monday"})["id"]
    run = client.wait(run_id, timeout=90)
    assert (run["status"], run["steps"]["payments"]["error"]) == (
        "failed",
        {"type": "timed_out", "message": "no signal 'file-arrived' came within 20 s"},
    )
    client.redrive(run_id)
    client.signal(run_id, "file-arrived", {"rows": 12})
    run = client.wait(run_id, timeout=60)
    assert (run["status"], run["output"]["payments"]) == ("succeeded", {"rows": 12})
    assert {name: step["attempts"] for name, step in run["steps"].items()} == {
        "window": 1,
        "orders": 1,
        "prices": 1,
        "payments": 2,
        "load": 1,
    }


def test_a_fork_runs_from_its_step_with_another_input(client: Client) -> None:
    source = client.wait(client.submit("diamond", {"value": "old"})["id"], timeout=60)
    forked = client.fork(source["id"], "combine", input={"value": "new"})
    run = client.wait(forked["id"], timeout=60)
    assert (run["status"], run["input"], run["output"]) == ("succeeded", {"value": "new"}, source["output"])
    assert {name: step["attempts"] for name, step in run["steps"].items()} == {
        "seed": 0,
        "left": 0,
        "right": 0,
        "combine": 1,
    }
    with pytest.raises(Invalid):
        client.fork(source["id"], "nowhere")


def test_the_command_line_has_every_move(client: Client, stack: LocalStack) -> None:
    run_id = client.submit("approval", {"what": "the release"})["id"]
    reaches(client, run_id, "waiting")
    assert fanfold(stack, "pause", run_id).stdout == "paused\n"
    assert fanfold(stack, "resume", run_id).stdout == "waiting\n"
    done = fanfold(stack, "signal", run_id, "approve", '{"approved": false, "by": "Ada"}')
    assert (done.returncode, done.stdout.strip().isdigit()) == (0, True)
    assert client.wait(run_id, timeout=60)["output"]["published"] is False
    refused = fanfold(stack, "cancel", run_id)
    assert (refused.returncode, "succeeded" in refused.stderr) == (2, True)
    forked = fanfold(stack, "fork", run_id, "--from", "draft").stdout.strip()
    assert fanfold(stack, "cancel", forked).returncode == 0
    assert reaches(client, forked, "cancelled")
    assert fanfold(stack, "redrive", forked).stdout == "waiting\n"
