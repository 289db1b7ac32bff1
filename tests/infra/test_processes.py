"""Worker processes that somebody else runs have a policy to attach: what a worker function may do, and to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.infra.conftest import Synthesised

CLASSES = '{"model": {}, "harness": {"pool": "process"}}'


def actions(statements: list[dict[str, Any]]) -> set[str]:
    return {
        action
        for each in statements
        for action in ([each["Action"]] if isinstance(each["Action"], str) else each["Action"])
    }


def test_a_class_of_processes_has_a_policy_with_a_worker_functions_rights(synth: Callable[..., Synthesised]) -> None:
    stack = synth({"stage": "prod", "classes": CLASSES})
    (policy,) = stack.all("AWS::IAM::ManagedPolicy").values()
    (function,) = (
        each["PolicyDocument"]["Statement"]
        for name, each in stack.all("AWS::IAM::Policy").items()
        if name.startswith("ModelWorker")
    )
    # Lambda asks for the attributes and the URL of a queue that a function takes from, and writes its log.
    of_lambda = {"logs:CreateLogStream", "logs:PutLogEvents", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
    assert actions(policy["PolicyDocument"]["Statement"]) == actions(function) - of_lambda
    assert list(stack.template["Outputs"]["WorkerPolicies"]["Value"]) == ["Fn::Join"]


def test_it_may_take_from_its_own_queues_only(synth: Callable[..., Synthesised]) -> None:
    stack = synth({"stage": "prod", "classes": CLASSES})
    (policy,) = stack.all("AWS::IAM::ManagedPolicy").values()
    (taking,) = (each for each in policy["PolicyDocument"]["Statement"] if "sqs:ReceiveMessage" in each["Action"])
    assert all(each["Fn::GetAtt"][0].startswith("HarnessQueues") for each in taking["Resource"])


def test_an_emulator_needs_none(synth: Callable[..., Synthesised]) -> None:
    assert not synth({"local": "true", "classes": CLASSES}).all("AWS::IAM::ManagedPolicy")
