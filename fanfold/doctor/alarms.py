"""Alarms that reach nobody: disabled actions, a topic that CloudWatch may not publish to, no subscription."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy

PAGE = 100
"""The most names in a DescribeAlarms call."""
CLOUDWATCH = "cloudwatch.amazonaws.com"
PUBLISH = ("sns:publish", "sns:*", "*")
"""Actions that allow publishing, in lower case: IAM ignores case."""
FAILED = "Failed to execute action"
"""The beginning of a history line about a failed action (AWS re:Post, SNS and alarms)."""
DAYS = 3
"""Days of an alarm's history that are read."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """Missing alarms, alarms without actions or with disabled ones; outside dev, a topic without a subscription."""
    client = deployment.client("cloudwatch")
    names = [alarm.physical_id for alarm in deployment.all("AWS::CloudWatch::Alarm")]
    found = {
        alarm["AlarmName"]: alarm
        for start in range(0, len(names), PAGE)
        for alarm in client.describe_alarms(AlarmNames=names[start : start + PAGE])["MetricAlarms"]
    }
    for name in names:
        alarm = found.get(name)
        if alarm is None:
            yield Finding(what=f"The alarm {name} is gone.", why="Nobody notices what it watches.", fix="Deploy again.")
        elif not alarm.get("AlarmActions"):
            yield Finding(
                what=f"The alarm {name} has no action.",
                why="It changes its state, and nobody is notified.",
                fix="Deploy again: every alarm notifies the stack's topic.",
            )
        elif not alarm.get("ActionsEnabled", True):
            yield Finding(
                what=f"The actions of the alarm {name} are switched off.",
                why="Nobody is notified when it goes off.",
                fix="Enable its actions when the work it was muted for is done.",
                remedy=Remedy(
                    does=f"enable the actions of {name}", apply=partial(client.enable_alarm_actions, AlarmNames=[name])
                ),
            )
    yield from barred(deployment)
    if deployment.kept:
        yield from _unheard(deployment)


def find_failed(deployment: Deployment) -> Iterator[Finding]:
    """Alarms that went off in the last days and whose action failed."""
    names = {alarm.physical_id for alarm in deployment.all("AWS::CloudWatch::Alarm")}
    pages = deployment.client("cloudwatch").get_paginator("describe_alarm_history")
    failed: dict[str, str] = {}
    since = deployment.now - timedelta(days=DAYS)
    for page in pages.paginate(HistoryItemType="Action", StartDate=since, EndDate=deployment.now):
        for item in page["AlarmHistoryItems"]:
            if item["AlarmName"] in names and FAILED in item["HistorySummary"]:
                failed.setdefault(item["AlarmName"], item["HistorySummary"])
    for name, summary in failed.items():
        yield Finding(
            what=f"The alarm {name} could not act in the last {DAYS} days: {summary}",
            why="It went off, and nobody was notified.",
            fix="Deploy again: the topic's policy lets CloudWatch publish. Then test it with aws cloudwatch"
            f" set-alarm-state --alarm-name {name} --state-value ALARM --state-reason test.",
        )


def barred(deployment: Deployment) -> Iterator[Finding]:
    """Topics to which CloudWatch may not publish, whatever the alarms say."""
    sns = deployment.client("sns")
    for topic in deployment.all("AWS::SNS::Topic"):
        policy = sns.get_topic_attributes(TopicArn=topic.physical_id)["Attributes"].get("Policy")
        if policy is not None and not any(_lets_cloudwatch(each) for each in _listed(json.loads(policy)["Statement"])):
            yield Finding(
                what=f"The policy of the alarms' topic ({topic.physical_id.rpartition(':')[2]}) does not let CloudWatch"
                " publish to it.",
                why="Alarms change their state, and no message is sent.",
                fix="Deploy again: the stack's policy allows it.",
            )


def _lets_cloudwatch(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    if isinstance(principal, Mapping):
        # SNS's default policy admits the topic's own account, and alarms publish as their account.
        principal = principal.get("Service", principal.get("AWS", ()))
    actions = {str(action).lower() for action in _listed(statement.get("Action", ()))}
    is_cloudwatch, is_publish = bool({CLOUDWATCH, "*"} & set(_listed(principal))), bool(actions & set(PUBLISH))
    return statement["Effect"] == "Allow" and is_cloudwatch and is_publish


def _listed(value: Any) -> list[Any]:
    """A list of the values; IAM documents may have a single value without a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _unheard(deployment: Deployment) -> Iterator[Finding]:
    sns = deployment.client("sns")
    for topic in deployment.all("AWS::SNS::Topic"):
        heard = sns.list_subscriptions_by_topic(TopicArn=topic.physical_id)["Subscriptions"]
        if not any(each["SubscriptionArn"].startswith("arn:") for each in heard):
            pending = "nobody has confirmed a subscription to" if heard else "nobody has subscribed to"
            yield Finding(
                what=f"The alarms tell a topic that {pending} ({topic.physical_id.rpartition(':')[2]}).",
                why="No alarm reaches a person.",
                fix="Deploy with `-c alarm_email=…`, or subscribe your pager to the topic, and confirm.",
            )


CHECK = Check(
    name="alarms", looks_at="alarms without actions, muted ones, and a topic nobody may tell or hears", find=find
)
FAILURES = Check(
    name="alarm-actions", looks_at=f"alarms that could tell nobody in the last {DAYS} days", find=find_failed
)
