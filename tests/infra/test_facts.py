"""What AWS will meet: who lets whom in, under which condition, and what else an emulator would not mind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.conftest import Json, Synthesised


def statements(stack: Synthesised, kind: str) -> list[Json]:
    return [s for policy in stack.all(kind).values() for s in policy["PolicyDocument"]["Statement"]]


def services(statement: Json) -> list[str]:
    principal = statement["Principal"]
    named = principal.get("Service", ()) if isinstance(principal, dict) else ()
    return [named] if isinstance(named, str) else list(named)


@pytest.fixture(scope="module")
def encrypted(synth: Callable[..., Synthesised]) -> Synthesised:
    """With a key of the customer's, and two classes."""
    classes = '{"model": {}, "harness": {"batch_size": 1}}'
    return synth({"stage": "prod", "kms": "true", "classes": classes}, nag=True)


@pytest.mark.parametrize("deployed", ["prod", "local", "encrypted"])
def test_cloudwatch_may_publish_to_every_topic_that_an_alarm_tells(
    deployed: str, request: pytest.FixtureRequest
) -> None:
    stack: Synthesised = request.getfixturevalue(deployed)
    told = {action["Ref"] for alarm in stack.all("AWS::CloudWatch::Alarm").values() for action in alarm["AlarmActions"]}
    let_in = {
        topic["Ref"]
        for policy in stack.all("AWS::SNS::TopicPolicy").values()
        for topic in policy["Topics"]
        for statement in policy["PolicyDocument"]["Statement"]
        if (statement["Effect"], services(statement)) == ("Allow", ["cloudwatch.amazonaws.com"])
        and (statement["Action"], statement["Resource"]) == ("sns:Publish", topic)
        and statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    }
    assert told == let_in != set()


CONDITIONS = ("aws:SourceAccount", "aws:SourceArn")


@pytest.mark.parametrize("deployed", ["prod", "encrypted"])
@pytest.mark.parametrize("kind", ["AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy"])
def test_a_service_is_let_in_only_for_this_account(kind: str, deployed: str, request: pytest.FixtureRequest) -> None:
    """A service acts for whoever asks it to: without a condition that may be anybody's account."""
    found = [s for s in statements(request.getfixturevalue(deployed), kind) if s["Effect"] == "Allow"]
    assert found
    for statement in found:
        assert services(statement), statement
        assert named(statement) & set(CONDITIONS), statement


def test_a_service_may_use_the_key_only_for_this_account(encrypted: Synthesised) -> None:
    (key,) = encrypted.all("AWS::KMS::Key").values()
    found = [statement for statement in key["KeyPolicy"]["Statement"] if services(statement)]
    assert [services(statement) for statement in found] == [["events.amazonaws.com"]]
    for statement in found:
        assert named(statement) & set(CONDITIONS), statement


def named(statement: Json) -> set[str]:
    """The condition keys of a statement."""
    conditions: dict[str, dict[str, Any]] = statement.get("Condition", {})
    return {key for of_kind in conditions.values() for key in of_kind}
