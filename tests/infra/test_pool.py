"""Worker containers: off unless asked for, allowed what the function would be, drained before they are killed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanfold.cdk.config import Config
from fanfold.cdk.fargate import fargate_of
from fanfold.cdk.fargate_service import LEAVE_SECONDS, MAX_STOP_SECONDS
from fanfold.service.settings import Settings
from fanfold.service.worker.process import POLL_SECONDS
from tests.infra.conftest import Synthesised

Json = dict[str, Any]


def classes(**fargate: Any) -> str:
    return json.dumps({"harness": {"pool": "process", "lanes": ["normal"], "fargate": fargate}})


@pytest.fixture(scope="module")
def pooled(synth: Callable[..., Synthesised]) -> Synthesised:
    """A class that containers work on, built from the Dockerfile; the rules have passed it."""
    fargate = {"min_tasks": 1, "max_tasks": 20, "concurrency": 8}
    return synth(
        {"stage": "prod", "classes": json.dumps({"model": {}, "harness": {"pool": "process", "fargate": fargate}})},
        nag=True,
    )


def container(stack: Synthesised) -> Json:
    (task,) = stack.all("AWS::ECS::TaskDefinition").values()
    (found,) = task["ContainerDefinitions"]
    return dict(found)


def permissions(stack: Synthesised, role: str) -> set[tuple[str, str]]:
    """Every action a role may do, with what it may do it on."""
    return {
        (action, stack.text(resource))
        for policy in stack.all("AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        for resource in (statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]])
    }


def test_nothing_of_it_is_there_unless_a_class_asks_for_it(prod: Synthesised) -> None:
    kinds = {resource["Type"] for resource in prod.template["Resources"].values()}
    assert not [kind for kind in kinds if kind.startswith(("AWS::ECS", "AWS::EC2", "AWS::ApplicationAutoScaling"))]


def test_an_emulator_starts_no_containers(synth: Callable[..., Synthesised]) -> None:
    assert not synth({"local": "true", "classes": classes()}).all("AWS::ECS::Service")


def test_a_container_is_the_worker_of_its_class_with_the_functions_environment(pooled: Synthesised) -> None:
    environment = {each["Name"]: pooled.text(each["Value"]) for each in container(pooled)["Environment"]}
    function = pooled.functions()["sweeper"]["Environment"]["Variables"]

    assert container(pooled)["Command"] == ["--class", "harness", "--concurrency", "8", "--json"]
    assert {name: pooled.text(value) for name, value in function.items()}.items() <= environment.items()
    assert Settings.from_env(environment).classes["harness"].max_step_seconds > 900
    assert environment["AWS_DEFAULT_REGION"] == "AWS::Region"


def test_it_may_do_what_a_worker_function_may(pooled: Synthesised) -> None:
    (task,) = pooled.all("AWS::ECS::TaskDefinition").values()
    granted = permissions(pooled, task["TaskRoleArn"]["Fn::GetAtt"][0])
    of_function = permissions(pooled, pooled.functions()["worker"]["Role"]["Fn::GetAtt"][0])

    def of(granted: set[tuple[str, str]], own: str, other: str) -> set[tuple[str, str]]:
        # Logs are written by the container service, and a mapping looks at its queue itself.
        spared = ("logs:", "sqs:GetQueueAttributes", "sqs:GetQueueUrl")
        named = {(a, r.replace(own, "Own").replace(other, "Other")) for a, r in granted if not a.startswith(spared)}
        # A logical id ends in a hash.
        return {(action, re.sub(r"[0-9A-F]{8}(?=[.:/]|$)", "", resource)) for action, resource in named}

    assert of(granted, "Harness", "Model") == of(of_function, "Model", "Harness")


def test_it_drains_before_it_is_killed(pooled: Synthesised) -> None:
    # What the drain does is tested in test_process_worker.py and test_local_stack.py.
    assert container(pooled)["StopTimeout"] == Settings().drain_seconds + LEAVE_SECONDS <= MAX_STOP_SECONDS
    assert LEAVE_SECONDS > 5 + POLL_SECONDS + 1


def test_a_drain_that_fargate_would_cut_off_is_refused(synth: Callable[..., Synthesised]) -> None:
    with pytest.raises(ValueError, match="drain_seconds"):
        synth({"stage": "prod", "classes": classes(), "settings": '{"drain_seconds": 101}'})


def test_there_are_more_of_it_while_runs_wait_and_the_least_when_there_are_none(pooled: Synthesised) -> None:
    policies = pooled.all("AWS::ApplicationAutoScaling::ScalingPolicy")
    actions = {
        alarm["AlarmActions"][0]["Ref"]: alarm
        for alarm in pooled.all("AWS::CloudWatch::Alarm").values()
        if alarm["AlarmActions"][0].get("Ref") in policies
    }
    steps = {p["StepScalingPolicyConfiguration"]["AdjustmentType"]: (k, p) for k, p in policies.items()}
    more, least = steps["ChangeInCapacity"], steps["ExactCapacity"]
    grown = [each["ScalingAdjustment"] for each in more[1]["StepScalingPolicyConfiguration"]["StepAdjustments"]]
    (shrunk,) = least[1]["StepScalingPolicyConfiguration"]["StepAdjustments"]
    waiting, empty = actions[more[0]], actions[least[0]]

    def metrics(alarm: Json) -> set[str]:
        return {m["MetricStat"]["Metric"]["MetricName"] for m in alarm["Metrics"] if "MetricStat" in m}

    assert grown == [2, 6]
    assert (waiting["ComparisonOperator"], waiting["Threshold"]) == ("GreaterThanThreshold", 30)
    assert metrics(waiting) == {"ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"}
    # A message in work is in its queue: no container is stopped while there is one.
    assert (shrunk["ScalingAdjustment"], empty["Threshold"]) == (1, 0)
    assert metrics(empty) == {"ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"}
    assert all(len(alarm["Metrics"]) - 1 <= 10 for alarm in actions.values())  # CloudWatch takes no more


def test_nobody_can_reach_a_container(pooled: Synthesised) -> None:
    (group,) = pooled.all("AWS::EC2::SecurityGroup").values()

    assert "SecurityGroupIngress" not in group
    assert not pooled.all("AWS::EC2::SecurityGroupIngress")
    assert not pooled.all("AWS::EC2::NatGateway")


def test_an_image_that_was_pushed_is_pulled_by_its_name(synth: Callable[..., Synthesised]) -> None:
    name = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/fanfold:7"
    stack = synth({"stage": "dev", "classes": classes(image=name)})
    (task,) = stack.all("AWS::ECS::TaskDefinition").values()
    pulling = permissions(stack, task["ExecutionRoleArn"]["Fn::GetAtt"][0])

    assert stack.text(container(stack)["Image"]).endswith("/team/fanfold:7")
    assert [resource for action, resource in pulling if action == "ecr:BatchGetImage"] == [
        "arn:AWS::Partition:ecr:eu-west-1:123456789012:repository/team/fanfold"
    ]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"cpu": 300}, "cpu"),
        ({"cpu": 1_024, "memory_mb": 1_024}, "memory_mb"),
        ({"cpu": 256, "memory_mb": 1_536}, "memory_mb"),
        ({"min_tasks": 3, "max_tasks": 2}, "min_tasks"),
        ({"max_tasks": 0, "min_tasks": 0}, "max_tasks"),
        ({"concurrency": 0}, "concurrency"),
        ({"scale_after_seconds": 0}, "scale_after_seconds"),
        ({"size": "big"}, "size"),
        ([], "object"),
    ],
)
def test_containers_that_fargate_does_not_have_are_refused_by_name(given: Any, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        fargate_of(given)


def test_the_example_in_the_documentation_is_a_class_of_containers() -> None:
    deployment = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
    (example,) = (e for e in re.findall(r"```toml\n(.*?)```", deployment, re.DOTALL) if "fargate" in e)
    context: Json = {"classes": tomllib.loads(example)["tool"]["fanfold"]["classes"]}

    (config,) = Config.from_context(context.get).classes.values()
    assert config.fargate is not None
    assert config.max_step_seconds > 900


def test_containers_are_for_classes_of_processes() -> None:
    context = {"classes": '{"model": {"fargate": {}}}'}
    with pytest.raises(ValueError, match="process"):
        Config.from_context(context.get)
    lanes = {"classes": '{"m": {"pool": "process", "fargate": {}, "lanes": ["a", "b", "c", "d", "e"]}}'}
    with pytest.raises(ValueError, match="lanes"):
        Config.from_context(lanes.get)
