"""What a project's stack gives the workers of a class: rights, variables, secrets, to all that run its tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from aws_cdk.assertions import Template

from fanfold.cdk.config import Config
from infra.stack import PROJECT, FanfoldStack
from tests.infra.conftest import CONTEXT

CLASSES = {
    "model": {"concurrency": 40},
    "box": {"pool": "process", "concurrency": 40, "fargate": {"image": "example.org/worker"}},
}


@pytest.fixture
def stack() -> FanfoldStack:
    context = {**CONTEXT, "aws:cdk:bundling-stacks": [], "stage": "prod", "classes": CLASSES}
    app = App(context=context, builtin_cloud_formation_validation=False)
    return FanfoldStack(app, "mine", config=Config.from_context(app.node.try_get_context, PROJECT))


def resources(stack: FanfoldStack, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = Template.from_stack(stack).find_resources(kind)
    return found


def variables(stack: FanfoldStack, *parts: str) -> list[dict[str, Any]]:
    """The environments of the functions whose names have these parts."""
    functions = resources(stack, "AWS::Lambda::Function")
    return [
        each["Properties"]["Environment"]["Variables"]
        for name, each in functions.items()
        if all(part in name for part in parts)
    ]


def test_what_is_granted_is_granted_to_all_that_run_tasks_of_the_class_and_to_nobody_else(stack: FanfoldStack) -> None:
    s3.Bucket(stack, "Reports").grant_read(stack.fanfold.worker("model"))
    (policy,) = [each["Properties"] for each in resources(stack, "AWS::IAM::ManagedPolicy").values()]
    roles = resources(stack, "AWS::IAM::Role")
    assert sorted(roles[role["Ref"]]["Properties"]["Description"] for role in policy["Roles"]) == [
        "Of Batch, alone",
        "Of Worker, alone",
    ]
    assert all(role["Ref"].startswith("Model") for role in policy["Roles"])
    assert "Reports" in json.dumps(policy["PolicyDocument"])


def test_containers_have_what_their_class_is_given(stack: FanfoldStack) -> None:
    s3.Bucket(stack, "Reports").grant_read(stack.fanfold.worker("box"))
    stack.fanfold.worker("box").add_environment("REPORTS", "there")
    (policy,) = [each["Properties"] for each in resources(stack, "AWS::IAM::ManagedPolicy").values()]
    assert len(policy["Roles"]) == 2, "of the container, and of the maps' batches"
    (task,) = resources(stack, "AWS::ECS::TaskDefinition").values()
    (container,) = task["Properties"]["ContainerDefinitions"]
    assert {"Name": "REPORTS", "Value": "there"} in container["Environment"]


def test_a_variable_is_in_the_environment_of_the_class_and_of_no_other(stack: FanfoldStack) -> None:
    stack.fanfold.worker("model").add_environment("REPORTS", "there")
    assert [each.get("REPORTS") for each in variables(stack, "Model")] == ["there", "there"]
    others = resources(stack, "AWS::Lambda::Function").items()
    assert not [
        name
        for name, each in others
        if "Model" not in name and "REPORTS" in each["Properties"].get("Environment", {}).get("Variables", {})
    ]


def test_a_secrets_address_is_told_and_its_value_is_nowhere(stack: FanfoldStack) -> None:
    worker = stack.fanfold.worker("model")
    worker.add_secret("API_KEY", secretsmanager.Secret.from_secret_name_v2(stack, "Key", "mine/key"))
    worker.add_secret(
        "OTHER",
        ssm.StringParameter.from_secure_string_parameter_attributes(stack, "Other", parameter_name="/mine/other"),
    )
    for environment in variables(stack, "Model"):
        assert "secret:" in json.dumps(environment["FANFOLD_SECRET_API_KEY"])
        assert environment["FANFOLD_SECRET_OTHER"] == "parameter:/mine/other"
        assert "API_KEY" not in environment
    text = json.dumps(resources(stack, "AWS::IAM::ManagedPolicy"))
    assert "secretsmanager:GetSecretValue" in text
    assert "ssm:GetParameter" in text
    assert "resolve:" not in json.dumps(Template.from_stack(stack).to_json()), "CloudFormation would write the value in"


@pytest.mark.parametrize("name", ["FANFOLD_TABLE", "aws_region", "1ST", "", "A-B", "LAMBDA_TASK_ROOT"])
def test_a_name_that_is_none_or_somebody_elses_is_refused(stack: FanfoldStack, name: str) -> None:
    with pytest.raises(ValueError, match="environment"):
        stack.fanfold.worker("model").add_environment(name, "x")


def test_the_workers_of_a_class_that_is_not_there_are_told_with_those_that_are(stack: FanfoldStack) -> None:
    with pytest.raises(ValueError, match="there is no class 'models'; there are: model, box"):
        stack.fanfold.worker("models")


def test_a_stack_that_gives_nothing_has_no_policy_for_it(stack: FanfoldStack) -> None:
    assert stack.fanfold.worker("model") is stack.fanfold.worker("model")
    assert resources(stack, "AWS::IAM::ManagedPolicy") == {}
