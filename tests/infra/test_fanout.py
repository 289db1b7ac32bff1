"""The state machine of wide maps: what it reads, what it tolerates, whom it rings for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fanfold.adapters.aws.stepfunctions import execution_input
from fanfold.adapters.message_codec import decode
from fanfold.cdk.classes import ClassConfig
from fanfold.engine.language.maps import Batch
from fanfold.engine.ports import Execution
from fanfold.engine.record.messages import Wake
from fanfold.service.settings import Settings
from fanfold.service.worker.map_batches import BatchEnd, Order
from tests.infra.conftest import ONE_CLASS, Synthesised

EXECUTION = Execution(
    name="r1-files-2-s1",
    class_name="model",
    tenant="acme",
    run_id="r1",
    submission="s1",
    step="files",
    try_number=2,
    batches="acme/r1/s1/files/map-2-w1.batches",
    batches_at_once=4,
)
WAKE = Wake(tenant="acme", run_id="r1", submission="s1", class_name="model", map_step="files")


def definition(stack: Synthesised) -> dict[str, Any]:
    (machine,) = stack.all("AWS::StepFunctions::StateMachine").values()
    found: dict[str, Any] = json.loads(stack.text(machine["DefinitionString"]))
    return found


def filled(template: dict[str, Any], given: dict[str, Any], context: dict[str, Any] | None = None) -> dict[str, Any]:
    """A state's parameters with the paths in them replaced, as Step Functions replaces them."""

    def value(key: str, path: Any) -> Any:
        if not key.endswith(".$"):
            return filled(path, given, context) if isinstance(path, dict) else path
        return (context or {})[path] if path.startswith("$$") else given[path.removeprefix("$.")]

    return {key.removesuffix(".$"): value(key, path) for key, path in template.items()}


def test_batches_come_from_the_list_in_s3_and_so_many_at_once_as_the_map_says(prod: Synthesised) -> None:
    batches = definition(prod)["States"]["Batches"]
    given = json.loads(execution_input(EXECUTION))

    reader = filled(batches["ItemReader"]["Parameters"], given)
    assert (reader["Key"], reader["Bucket"]) == (EXECUTION.batches, *prod.all("AWS::S3::Bucket"))
    assert given[batches["MaxConcurrencyPath"].removeprefix("$.")] == 4


def test_no_failure_of_a_batch_fails_the_execution(prod: Synthesised) -> None:
    assert definition(prod)["States"]["Batches"]["ToleratedFailurePercentage"] == 100


def test_the_function_is_asked_as_it_reads_its_orders(prod: Synthesised) -> None:
    selector = definition(prod)["States"]["Batches"]["ItemSelector"]
    event = filled(selector, json.loads(execution_input(EXECUTION)), {"$$.Map.Item.Value": {"from": 50, "to": 75}})

    order = Order.from_event(event)
    assert (order.run_id, order.step, order.try_number, order.batch.first, order.batch.end) == (
        "r1",
        "files",
        2,
        50,
        75,
    )


def test_a_batch_whose_function_dies_twice_is_asked_for_item_by_item(prod: Synthesised) -> None:
    states = definition(prod)["States"]["Batches"]["ItemProcessor"]["States"]
    work, apart, items = states["Work on a batch"], states["Apart"], states["Items"]
    busy, any_other = work["Catch"]

    assert [retry["MaxAttempts"] for retry in work["Retry"] if retry["ErrorEquals"] == ["States.ALL"]] == [1]
    assert (any_other["ErrorEquals"], any_other["Next"], any_other["ResultPath"]) == (["States.ALL"], "Apart", None)
    assert states[busy["Next"]]["Type"] == "Pass", "what was refused is not asked for item by item"
    assert "Lambda.TooManyRequestsException" in busy["ErrorEquals"]

    assert apart["Parameters"]["indexes.$"] == "States.ArrayRange($.batch.from, States.MathAdd($.batch.to, -1), 1)"
    assert (apart["Next"], items["ItemsPath"]) == ("Items", "$.indexes")
    given = {key: value for key, value in json.loads(execution_input(EXECUTION)).items() if key != "batches"}
    context = {"$$.Map.Item.Value": 7}
    batch = items["ItemSelector"].pop("batch")
    assert batch == {"from.$": "$$.Map.Item.Value", "to.$": "States.MathAdd($$.Map.Item.Value, 1)"}
    event = {**filled(items["ItemSelector"], given), "batch": {"from": context["$$.Map.Item.Value"], "to": 8}}
    assert Order.from_event(event).batch == Batch(first=7, end=8)

    (alone,) = (state for state in items["ItemProcessor"]["States"].values() if state["Type"] == "Task")
    assert [retry["ErrorEquals"] for retry in alone["Retry"]] == [busy["ErrorEquals"]], "one call, unless refused"
    refused, dead = alone["Catch"]
    assert (refused["ErrorEquals"], dead["ErrorEquals"]) == (busy["ErrorEquals"], ["States.ALL"])
    words = [items["ItemProcessor"]["States"][catch["Next"]] for catch in (refused, dead)]
    assert [word["Result"] for word in words] == ["throttled", "dead"]
    assert all(word["End"] for word in words)
    # What the batch answers then is a word of each item, and none of the causes.
    assert items["End"]
    assert "ResultPath" not in items


def test_the_end_of_an_execution_rings_in_the_classs_resume_queue(prod: Synthesised) -> None:
    wake = definition(prod)["States"]["SendWake"]
    queues = (
        Settings.from_env({k: prod.text(v) for k, v in prod.functions()["worker"]["Environment"]["Variables"].items()})
        .classes["model"]
        .queues
    )
    sent = filled(wake["Parameters"], json.loads(execution_input(EXECUTION)))

    assert sent["QueueUrl"] == queues["resume"]
    assert sent["MessageGroupId"] == "acme"
    assert decode(json.dumps(sent["MessageBody"])).message == WAKE
    assert wake["End"] is True


def test_without_fair_queues_nothing_is_sent_in_a_group(synth: Callable[..., Synthesised]) -> None:
    stack = synth({"stage": "dev", "classes": ONE_CLASS, "settings": {"fair_queues": False}})

    assert "MessageGroupId" not in json.dumps(definition(stack))
    for name in ("worker", "api", "sweeper"):
        variables = stack.functions()[name]["Environment"]["Variables"]
        assert Settings.from_env({k: stack.text(v) for k, v in variables.items()}).fair_queues is False


def test_every_end_of_an_execution_rings_too(prod: Synthesised) -> None:
    (rule,) = (r for r in prod.all("AWS::Events::Rule").values() if "EventPattern" in r)
    (machine,) = prod.all("AWS::StepFunctions::StateMachine")
    (target,) = rule["Targets"]
    detail = {"executionArn": "arn:…", "status": "ABORTED", "input": execution_input(EXECUTION)}

    assert rule["EventPattern"]["detail"]["stateMachineArn"] == [{"Ref": machine}]
    assert set(rule["EventPattern"]["detail"]["status"]) == {"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"}
    assert target["InputPath"] == "$.detail"
    assert decode(json.dumps(detail)).message == WAKE


def test_a_batch_of_short_items_is_an_express_execution_and_one_of_long_items_a_standard_one(
    synth: Callable[..., Synthesised], prod: Synthesised
) -> None:
    def kind(stack: Synthesised) -> tuple[str, int]:
        processor = definition(stack)["States"]["Batches"]["ItemProcessor"]["ProcessorConfig"]
        return processor["ExecutionType"], stack.functions()["fanout"]["Timeout"]

    long = synth({"stage": "dev", "classes": '{"model": {"item_seconds": 800}}'})
    assert kind(prod) == ("EXPRESS", 285)
    assert kind(long) == ("STANDARD", 845)
    with pytest.raises(ValueError, match="item_seconds"):
        ClassConfig(item_seconds=900)


def test_what_works_on_batches_may_write_their_records_and_no_run(prod: Synthesised) -> None:
    role = prod.functions()["fanout"]["Role"]["Fn::GetAtt"][0]
    statements = [
        statement
        for policy in prod.all("AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    (writing,) = (s for s in statements if "PutItem" in str(s["Action"]))

    assert writing["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["?*#*#*#*"]}}
    assert not [s for s in statements if "UpdateItem" in str(s["Action"]) or "sqs:" in str(s["Action"])]


def test_no_failure_of_a_batch_fails_it_on_an_emulator_and_its_batches_are_what_every_emulator_has(
    local: Synthesised,
) -> None:
    batches = definition(local)["States"]["Batches"]

    assert batches["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    assert "ToleratedFailurePercentage" not in batches
    most = Settings.from_env(
        {k: local.text(v) for k, v in local.functions()["worker"]["Environment"]["Variables"].items()}
    ).max_map_items
    assert batches["ToleratedFailureCount"] >= most


def test_an_emulator_is_given_a_number_of_batches_at_once_since_it_reads_none(local: Synthesised) -> None:
    batches = definition(local)["States"]["Batches"]

    assert batches["MaxConcurrency"] == 4
    assert "MaxConcurrencyPath" not in batches


def test_a_batch_that_finds_no_room_says_so_while_its_execution_lives(
    synth: Callable[..., Synthesised], prod: Synthesised
) -> None:
    def waits(stack: Synthesised) -> tuple[Any, int]:
        states = definition(stack)["States"]["Batches"]["ItemProcessor"]["States"]
        work = states["Work on a batch"]
        busy = [retry for retry in work.get("Retry", ()) if "Lambda.TooManyRequestsException" in retry["ErrorEquals"]]
        catch, _ = work["Catch"]
        assert "Lambda.TooManyRequestsException" in catch["ErrorEquals"]
        assert "States.ALL" not in catch["ErrorEquals"]  # what died was begun
        assert states[catch["Next"]] == {"Type": "Pass", "Result": "throttled", "End": True}
        seconds = [min(retry["IntervalSeconds"] * 2**n, 60) for retry in busy for n in range(retry["MaxAttempts"])]
        assert all(retry["JitterStrategy"] == "FULL" for retry in busy)
        return definition(stack)["States"]["Batches"]["ItemProcessor"]["ProcessorConfig"]["ExecutionType"], sum(seconds)

    assert waits(prod) == ("EXPRESS", 15)
    for item_seconds in (1, 100, 255):
        stack = synth({"stage": "dev", "classes": {"model": {"item_seconds": item_seconds}}})
        kind, seconds = waits(stack)
        assert kind == "EXPRESS"
        assert stack.functions()["fanout"]["Timeout"] + seconds <= 300
    assert waits(synth({"stage": "dev", "classes": {"model": {"item_seconds": 800}}})) == ("STANDARD", 303)


def test_what_the_batches_answered_is_the_executions_output(prod: Synthesised) -> None:
    states = definition(prod)["States"]

    assert states["Batches"]["ResultPath"] == "$.answers"
    assert states["SendWake"]["ResultPath"] is None
    # The answers of ten thousand batches of one item, each asked for by itself, and what the execution was given, are
    # an output.
    longest = [max((*map(str, BatchEnd), "throttled", "dead"), key=len)]
    assert len(json.dumps([longest] * Settings().max_map_items)) + 8_192 < 256 * 1_024


def test_a_class_may_bound_what_its_maps_take(synth: Callable[..., Synthesised], prod: Synthesised) -> None:
    stack = synth({"stage": "dev", "classes": {"model": {"map_concurrency": 40}}})
    environment = {k: stack.text(v) for k, v in stack.functions()["worker"]["Environment"]["Variables"].items()}

    assert stack.functions()["fanout"]["ReservedConcurrentExecutions"] == 40
    assert Settings.from_env(environment).classes["model"].map_concurrency == 40
    assert "ReservedConcurrentExecutions" not in prod.functions()["fanout"]
    with pytest.raises(ValueError, match="map_concurrency"):
        ClassConfig(map_concurrency=0)
