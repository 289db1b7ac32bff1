"""Wide maps through the whole stack: the state machine that CDK deploys, executed by the emulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fanfold import Client
from fanfold.local.local_stack import LocalStack
from tests.support import elsewhere

pytestmark = pytest.mark.emulator


def wide(name: str, *, task: str = "core.echo", given: Any = None, **mapped: Any) -> dict[str, Any]:
    """A workflow of one wide map."""
    of_map = {"over": "${input.items}", "task": task, "via": "stepfunctions", "max_concurrency": 100, **mapped}
    if given is not None:
        of_map["input"] = given
    return {"name": name, "steps": {"each": {"map": of_map, "timeout": "60s"}}, "output": "${steps.each.output}"}


@pytest.fixture
def step_functions(stack: LocalStack) -> Iterator[Any]:
    client = elsewhere.session(stack.endpoint).client("stepfunctions")
    yield client
    client.close()


def executions(step_functions: Any, run_id: str) -> list[dict[str, Any]]:
    """The executions of a run's maps, newest first."""
    return [
        execution
        for machine in step_functions.list_state_machines()["stateMachines"]
        for execution in step_functions.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]
        if execution["name"].startswith(run_id)
    ]


def until_it_runs(step_functions: Any, run_id: str) -> dict[str, Any]:
    """The execution of the run's map, as soon as there is one."""
    for _ in range(300):
        if found := executions(step_functions, run_id):
            return found[0]
        time.sleep(0.1)
    raise AssertionError("the map was not started")


def test_a_thousand_items_come_back_in_order(client: Client) -> None:
    client.apply(wide("thousand", given={"value": "${item}", "at": "${index}"}))
    run_id = client.submit("thousand", {"items": list(range(1_000))})["id"]
    client.wait(run_id, timeout=120)
    run = client.get(run_id, inline=True)
    assert (run["status"], run["error"]) == ("succeeded", None)
    assert run["output"] == [{"value": n, "at": n} for n in range(1_000)]
    types = [event["type"] for event in client.events(run["id"])]
    assert types.count("map.started") == types.count("map.finished") == 1
    # The run was let go meanwhile, and taken up again by the ring.
    assert types.count("run.claimed") == 2


def test_an_execution_that_is_aborted_from_outside_fails_the_map_at_once(client: Client, step_functions: Any) -> None:
    client.apply(wide("aborted", task="chaos.sleep", given={"ms": 20_000}))
    run_id = client.submit("aborted", {"items": [1, 2]})["id"]
    execution = until_it_runs(step_functions, run_id)
    step_functions.stop_execution(executionArn=execution["executionArn"])
    run = client.wait(run_id, timeout=60)
    assert (run["status"], run["steps"]["each"]["error"]["type"]) == ("failed", "items_failed")
    assert "no_result" in run["steps"]["each"]["error"]["message"]


def test_a_batch_whose_function_dies_costs_its_own_items_and_no_other(client: Client) -> None:
    document = wide(
        "dying",
        task="chaos.crash",
        given={"times": "${item}"},
        max_concurrency=4,  # one item a batch
        tolerate={"count": 1},
    )
    client.apply(document)
    run = client.wait(client.submit("dying", {"items": [0, 1, 0]})["id"], timeout=120)
    assert (run["status"], run["error"]) == ("succeeded", None)
    assert run["output"] == [{"times": 0}, None, {"times": 0}]


def test_an_item_that_kills_its_function_fails_only_itself(client: Client) -> None:
    document = wide(
        "killers",
        task="chaos.crash",
        given={"times": "${item}"},
        max_concurrency=40,  # batches of ten
        tolerate={"count": 2},
    )
    client.apply(document)
    items = [100 if index in (3, 17) else 0 for index in range(20)]
    run_id = client.submit("killers", {"items": items})["id"]
    client.wait(run_id, timeout=180)
    run = client.get(run_id, inline=True)
    assert (run["status"], run["error"]) == ("succeeded", None)
    assert run["output"] == [None if index in (3, 17) else {"times": 0} for index in range(20)]


def test_cancelling_the_run_stops_the_execution(client: Client, step_functions: Any) -> None:
    client.apply(wide("stopped", task="chaos.sleep", given={"ms": 20_000}))
    run_id = client.submit("stopped", {"items": [1, 2]})["id"]
    until_it_runs(step_functions, run_id)
    client.cancel(run_id)
    assert client.wait(run_id, timeout=60)["status"] == "cancelled"
    (execution,) = executions(step_functions, run_id)
    assert execution["status"] == "ABORTED"


@pytest.fixture
def no_room(stack: LocalStack, step_functions: Any) -> Iterator[Callable[[], None]]:
    """Lambda refuses every batch, until what this gives is called."""
    functions = elsewhere.session(stack.endpoint).client("lambda")
    batches = [f["FunctionName"] for f in functions.list_functions()["Functions"] if "Batch" in f["FunctionName"]]
    machines = [m["stateMachineArn"] for m in step_functions.list_state_machines()["stateMachines"]]
    written = {arn: step_functions.describe_state_machine(stateMachineArn=arn)["definition"] for arn in machines}

    def room() -> None:
        for name in batches:
            functions.delete_function_concurrency(FunctionName=name)

    for name in batches:
        functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    for arn, definition in written.items():
        # The embedded emulator's state machines have another word for a call that Lambda throttled, and it throttles
        # none that goes to an alias.
        adapted = definition.replace("Lambda.TooManyRequestsException", "Lambda.Unknown").replace(":live", "")
        assert adapted != definition
        step_functions.update_state_machine(stateMachineArn=arn, definition=adapted)
    yield room
    room()
    for arn, definition in written.items():
        step_functions.update_state_machine(stateMachineArn=arn, definition=definition)
    functions.close()


def test_items_that_find_no_room_are_asked_for_again_until_there_is_some(
    client: Client, step_functions: Any, no_room: Callable[[], None]
) -> None:
    client.apply(wide("crowded", given={"value": "${item}"}))
    run_id = client.submit("crowded", {"items": [1, 2, 3]})["id"]
    for _ in range(600):
        if len(executions(step_functions, run_id)) > 1:
            break
        time.sleep(0.1)
    assert client.get(run_id)["status"] == "waiting"
    no_room()
    run = client.wait(run_id, timeout=120)
    assert (run["status"], run["error"]) == ("succeeded", None)
    assert run["output"] == [{"value": 1}, {"value": 2}, {"value": 3}]
    assert len(executions(step_functions, run_id)) >= 2
