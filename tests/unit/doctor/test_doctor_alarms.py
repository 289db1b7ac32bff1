"""The doctor on alarms that can't be heard: the topic keeps CloudWatch out, or told nobody when one went off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from moto import mock_aws

from fanfold.doctor import alarms
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.resource import Resource

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
OWN = "fanfold-prod-Errors"
FAILED = f'Failed to execute action arn:aws:sns:us-east-1:123456789012:t. Received error: "{OWN} is not authorized"'


def allows(principal: Any, *, action: str = "sns:Publish", effect: str = "Allow") -> dict[str, Any]:
    return {"Effect": effect, "Principal": principal, "Action": action, "Resource": "*"}


DENY_ONLY = allows("*", effect="Deny")
CLOUDWATCH = allows({"Service": "cloudwatch.amazonaws.com"})


class Looked(Deployment):
    """A deployment of one topic and one alarm, whose alarms' history says what it is told."""

    def __init__(self, topic_arn: str, history: list[dict[str, str]]) -> None:
        super().__init__("fanfold-prod", boto3.Session(region_name="us-east-1"), now=NOW)
        self._history = history
        self.resources = (
            Resource(logical_id="Topic", kind="AWS::SNS::Topic", physical_id=topic_arn, properties={}),
            Resource(logical_id="Errors", kind="AWS::CloudWatch::Alarm", physical_id=OWN, properties={}),
        )

    def client(self, service: str) -> Any:
        # moto keeps no history of actions.
        return _CloudWatch(self._history) if service == "cloudwatch" else super().client(service)


class _CloudWatch:
    def __init__(self, history: list[dict[str, str]]) -> None:
        self._history = history

    def get_paginator(self, name: str) -> _CloudWatch:
        assert name == "describe_alarm_history"
        return self

    def paginate(self, *, HistoryItemType: str, **_: Any) -> list[dict[str, Any]]:
        assert HistoryItemType == "Action"
        return [{"AlarmHistoryItems": [item]} for item in self._history]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        sns = boto3.client("sns", region_name="us-east-1")
        yield sns.create_topic(Name="alarms")["TopicArn"]
        sns.close()


def found(topic: str, *statements: dict[str, Any]) -> list[str]:
    sns = boto3.client("sns", region_name="us-east-1")
    if statements:
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy)
    sns.close()
    looked = Looked(topic, [])
    try:
        return [finding.what for finding in alarms.barred(looked)]
    finally:
        looked.close()


@pytest.mark.parametrize(
    "statements",
    [
        [DENY_ONLY],
        [DENY_ONLY, allows({"Service": "events.amazonaws.com"})],
        [DENY_ONLY, allows({"Service": "cloudwatch.amazonaws.com"}, action="sns:Subscribe")],
        [allows({"Service": "cloudwatch.amazonaws.com"}, effect="Deny")],
    ],
)
def test_a_topic_that_keeps_cloudwatch_out_is_found(topic: str, statements: list[dict[str, Any]]) -> None:
    (what,) = found(topic, *statements)
    assert "does not let CloudWatch publish" in what


@pytest.mark.parametrize(
    "statements",
    [
        [],  # SNS's own policy
        [DENY_ONLY, CLOUDWATCH],
        [allows({"Service": ["events.amazonaws.com", "cloudwatch.amazonaws.com"]}, action="SNS:Publish")],
        [allows("*", action="sns:*")],
    ],
)
def test_a_topic_that_lets_cloudwatch_in_is_none(topic: str, statements: list[dict[str, Any]]) -> None:
    assert found(topic, *statements) == []


def test_an_alarm_whose_action_failed_is_found_once_and_strangers_are_not(topic: str) -> None:
    history = [
        {"AlarmName": OWN, "HistorySummary": FAILED},
        {"AlarmName": OWN, "HistorySummary": FAILED},
        {"AlarmName": OWN, "HistorySummary": "Successfully executed action arn:aws:sns:us-east-1:123456789012:t"},
        {"AlarmName": "somebody-elses", "HistorySummary": FAILED},
    ]
    looked = Looked(topic, history)
    try:
        (finding,) = alarms.find_failed(looked)
    finally:
        looked.close()
    assert OWN in finding.what
    assert "not authorized" in finding.what
