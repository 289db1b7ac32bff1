"""Runs through the whole stack: HTTP API, queues, worker functions, table, deployed by CDK into the emulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fanfold import Client, Invalid, NotFound, StateConflict, Unauthorized
from fanfold.local import deploy, emf_forwarder, emulator
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import LocalError, LocalStack
from tests.integration.conftest import free_port
from tests.support import elsewhere
from tests.support.elsewhere import ENDPOINT

pytestmark = pytest.mark.emulator


def fanfold(stack: LocalStack, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, in the stack's project folder."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FANFOLD_", "AWS_"))}
    return subprocess.run(
        [sys.executable, "-m", "fanfold.commands.command_line", *arguments],
        cwd=Path(stack.ledger).parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_tiny_finishes_with_its_greeting(client: Client) -> None:
    accepted = client.submit("tiny", {"name": "you"})
    run = client.wait(accepted["id"], timeout=60)
    assert (run["status"], run["epoch"]) == ("succeeded", 1)
    assert "you" in json.dumps(run["output"])


def test_an_accepted_run_can_be_read_at_once(client: Client) -> None:
    accepted = client.submit("tiny")
    assert client.get(accepted["id"])["id"] == accepted["id"]


def test_diamond_runs_its_middle_side_by_side_and_its_journal_has_no_gaps(client: Client) -> None:
    accepted = client.submit("diamond", {"value": "a seed"})
    events = list(client.events(accepted["id"]))
    run = client.get(accepted["id"])
    assert run["status"] == "succeeded"
    assert {name: step["status"] for name, step in run["steps"].items()} == dict.fromkeys(
        ["seed", "left", "right", "combine"], "succeeded"
    )
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [events[0]["type"], events[-1]["type"]] == ["run.accepted", "run.succeeded"]
    order = [(event["type"], event.get("step")) for event in events]
    both_began = max(order.index(("step.started", step)) for step in ("left", "right"))
    one_ended = min(order.index(("step.succeeded", step)) for step in ("left", "right"))
    assert both_began < one_ended


def test_the_same_key_is_the_same_run_and_another_body_is_a_conflict(client: Client) -> None:
    first = client.submit("tiny", {"n": 1}, key="once")
    assert client.submit("tiny", {"n": 1}, key="once")["id"] == first["id"]
    with pytest.raises(StateConflict):
        client.submit("tiny", {"n": 2}, key="once")


def test_runs_are_listed_newest_first_over_pages(client: Client) -> None:
    made = [client.submit("tiny", {"n": n}, tags={"batch": "listing"})["id"] for n in range(3)]
    for run_id in made:
        client.wait(run_id, timeout=60)
    assert [run["id"] for run in client.runs(tags=["batch=listing"], page=2)] == made[::-1]


@pytest.mark.parametrize("token", ["", "ff_0123456789abcdef_" + "a" * 43, "nonsense"])
def test_nobody_gets_in_without_a_token_of_this_deployment(stack: LocalStack, token: str) -> None:
    with Client(stack.api_url, token) as stranger, pytest.raises(Unauthorized):
        stranger.queues()


def test_an_unknown_workflow_and_an_unknown_run_are_not_found(client: Client) -> None:
    with pytest.raises(NotFound):
        client.submit("no-such-workflow")
    with pytest.raises(NotFound):
        client.get("r" + "a" * 25)


def test_every_problem_of_a_document_is_told_at_once(client: Client) -> None:
    steps = {"a": {"task": "no.such"}, "b": {"task": "core.echo", "needs": ["c"]}}
    with pytest.raises(Invalid) as invalid:
        client.apply({"name": "broken", "steps": steps})
    assert {error["pointer"].split("/")[2] for error in invalid.value.errors} == {"a", "b"}


def test_a_body_that_is_no_json_is_a_problem_with_a_sentence(stack: LocalStack) -> None:
    answer = httpx.post(
        f"{stack.api_url}/v1/runs", content=b"{", headers={"authorization": f"Bearer {stack.token}"}, timeout=30
    )
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["detail"]


def test_health_needs_no_token(stack: LocalStack) -> None:
    with Client(stack.api_url) as anybody:
        assert anybody.health()["status"] == "ok"


def test_the_command_line_finds_the_stack_and_finishes_a_run(stack: LocalStack) -> None:
    done = fanfold(stack, "submit", "diamond", "--wait", "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "succeeded")
    listed = fanfold(stack, "runs", "--json", "--limit", "1")
    assert [run["id"] for run in json.loads(listed.stdout)] == [json.loads(done.stdout)["id"]]


def test_a_run_that_fails_makes_the_command_fail(stack: LocalStack, client: Client) -> None:
    client.apply({"name": "failing", "steps": {"a": {"task": "chaos.fail", "input": {"retryable": False}}}})
    assert fanfold(stack, "submit", "failing", "--wait").returncode == 1


def test_a_token_with_the_scope_to_read_alone_may_not_submit_and_ends_by_being_revoked(stack: LocalStack) -> None:
    made = fanfold(stack, "token", "create", "--tenant", "other", "--owner", "a reader", "--scope", "read", "--json")
    token: dict[str, Any] = json.loads(made.stdout)
    with Client(stack.api_url, token["token"]) as reader:
        assert list(reader.runs()) == []
        with pytest.raises(Unauthorized):
            reader.submit("tiny")
    assert fanfold(stack, "token", "revoke", token["id"]).returncode == 0
    listed = json.loads(fanfold(stack, "token", "list", "--json").stdout)
    assert [t["revoked_at"] is not None for t in listed if t["id"] == token["id"]] == [True]
    assert fanfold(stack, "token", "revoke", "0" * 16).returncode == 2


def test_a_token_that_has_expired_lets_nobody_in(stack: LocalStack) -> None:
    made: dict[str, Any] = json.loads(fanfold(stack, "token", "create", "--expires", "1ms", "--json").stdout)
    with Client(stack.api_url, made["token"]) as late, pytest.raises(Unauthorized, match="expired"):
        late.queues()
    assert fanfold(stack, "token", "revoke", made["id"]).returncode == 0


@contextmanager
def no_functions(stack: LocalStack) -> Iterator[None]:
    """The worker functions take nothing meanwhile, so that what is done is done by somebody else."""
    functions = elsewhere.session(stack.endpoint).client("lambda")
    name = f"{stack.functions['worker-model']}:live"
    mappings = [m["UUID"] for m in functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]]
    try:
        for mapping in mappings:
            functions.update_event_source_mapping(UUID=mapping, Enabled=False)
        yield
    finally:
        for mapping in mappings:
            functions.update_event_source_mapping(UUID=mapping, Enabled=True)
        functions.close()


@contextmanager
def worker_process(stack: LocalStack, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`fanfold worker` in the stack's project folder; killed at the end if it is still there."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FANFOLD_", "AWS_"))}
    with subprocess.Popen(
        [sys.executable, "-m", "fanfold.commands.command_line", "worker", *arguments],
        cwd=Path(stack.ledger).parent,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def test_a_worker_process_works_on_the_same_queues_and_drains_when_told_to_stop(
    stack: LocalStack, client: Client
) -> None:
    with no_functions(stack), worker_process(stack, "--concurrency", "4", "--json") as worker:
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline())["pid"] == worker.pid
        run = client.wait(client.submit("diamond")["id"], timeout=60)
        claims = [event for event in client.events(run["id"]) if event["type"] == "run.claimed"]
        assert (run["status"], [claim["worker"].rpartition(":")[2] for claim in claims]) == (
            "succeeded",
            [str(worker.pid)],
        )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=40) == 0
        for line in worker.stdout:  # for programs: what is for a person goes to stderr
            assert isinstance(json.loads(line), dict)


def test_a_worker_of_an_unknown_class_or_lane_says_which_there_are(stack: LocalStack) -> None:
    for arguments in (["--class", "nobody"], ["--lanes", "nowhere"]):
        told = fanfold(stack, "worker", *arguments)
        assert (told.returncode, "no" in told.stderr) == (2, True)


@pytest.mark.usefixtures("own_emulator")
def test_the_demonstration_shows_what_it_promises(stack: LocalStack) -> None:
    shown = fanfold(stack, "demo", "--json", seconds=150)
    assert shown.returncode == 0, shown.stderr
    outcome = json.loads(shown.stdout)
    assert outcome["run"]["epoch"] == 2
    assert outcome["executions"] == {"seed": 1, "left": 1, "right": 1, "combine": 1}
    assert outcome["seconds_from_kill"] < 30


def test_the_file_tells_what_others_need(stack: LocalStack) -> None:
    told = json.loads((Path(stack.ledger).parent / "local.json").read_text())
    assert Path(told["ledger"]).is_absolute()
    assert {"normal", "resume", "dead"} <= set(told["queues"]["model"])
    assert told["env"]["FANFOLD_TABLE"] == told["table"]
    assert (told["pid"] is None) == bool(ENDPOINT)
    assert emulator.answers(told["endpoint"])
    assert emf_forwarder.is_ours(told["bridge_pid"], Path(stack.ledger).parent)


@pytest.mark.usefixtures("own_emulator")
def test_a_deployment_that_fails_is_one_sentence_and_leaves_no_process_behind(tmp_path: Path) -> None:
    port = free_port()
    options = Options(port=port, settings={"no_such_setting": 1})
    with pytest.raises(LocalError, match="no_such_setting") as told:
        deploy.up(options, state=tmp_path, environ=os.environ, report=print)
    assert told.value.status == 4
    assert len(str(told.value).splitlines()) == 1
    assert not (tmp_path / "local.json").exists()
    emulator.check_port(port)  # raises while anybody listens
