"""Alarms that nobody hears."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy

PAGE = 100
"""DescribeAlarms takes so many names at once."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """An alarm that is gone, does nothing or is muted; in a stage other than dev, a topic nobody has subscribed to."""
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
            yield Finding(what=f"The alarm {name} is gone.", why="What it watches goes unseen.", fix="Deploy again.")
        elif not alarm.get("AlarmActions"):
            yield Finding(
                what=f"The alarm {name} has no action.",
                why="It changes its colour, and nobody is told.",
                fix="Deploy again: every alarm tells the stack's topic.",
            )
        elif not alarm.get("ActionsEnabled", True):
            yield Finding(
                what=f"The actions of the alarm {name} are switched off.",
                why="Nobody is told when it goes off.",
                fix="Enable its actions when the work it was muted for is done.",
                remedy=Remedy(
                    does=f"enable the actions of {name}", apply=partial(client.enable_alarm_actions, AlarmNames=[name])
                ),
            )
    if deployment.kept:
        yield from _unheard(deployment)


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


CHECK = Check(name="alarms", looks_at="alarms without actions, muted ones, and a topic nobody hears", find=find)
