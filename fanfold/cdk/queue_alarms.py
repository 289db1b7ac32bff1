"""Alarms on dead letters, messages that nobody receives in time, and runs that begin too late."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from fanfold.cdk.alarm_factory import AlarmFactory
from fanfold.cdk.config import Config
from fanfold.cdk.metrics import PERIOD, age, own
from fanfold.cdk.queues import Queues
from fanfold.service.telemetry.metrics import Metric


def queue_alarms(alarms: AlarmFactory, queues: Mapping[str, Queues], config: Config) -> None:
    """Add alarms for each class's dead letters, and for each queue from which its workers receive."""
    for class_name, each in queues.items():
        # Dead letters are received at once, so visible messages alone would miss them. Others are mostly in flight.
        letters = cloudwatch.MathExpression(
            expression="FILL(received, 0) + FILL(visible, 0) + FILL(hidden, 0)",
            label=f"{class_name}: dead letters",
            period=PERIOD,
            using_metrics={
                "received": each.dead.metric_number_of_messages_received(period=PERIOD),
                "visible": each.dead.metric_approximate_number_of_messages_visible(period=PERIOD),
                "hidden": each.dead.metric_approximate_number_of_messages_not_visible(period=PERIOD),
            },
        )
        alarms.add(
            f"{class_name.capitalize()}DeadLetters",
            letters,
            over=0,
            section="dead-letters",
            says=f"Messages of class {class_name} were received too often.",
        )
        for role, queue in each.sources.items():
            _waiting_alarm(alarms, f"{class_name.capitalize()}{role.capitalize()}", class_name, role, queue, config)


def _waiting_alarm(
    alarms: AlarmFactory, name: str, class_name: str, role: str, queue: sqs.Queue, config: Config
) -> None:
    of_class = config.classes[class_name]
    if of_class.pool == "lambda" and config.mappings:
        limit = of_class.age_limit_seconds(role)
        alarms.add(
            f"{name}Age",
            age(queue),
            over=limit,
            section="oldest-message",
            says=f"A message in {class_name}/{role} is older than {limit} s.",
        )
        return
    # A process may work on a run for hours, so an age says nothing. That no message is received does.
    untaken = cloudwatch.MathExpression(
        expression="IF(FILL(taken, 0) < 1, FILL(waiting, 0), 0)",
        label=f"{class_name}/{role}: waiting, none taken",
        period=PERIOD,
        using_metrics={
            "waiting": queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Minimum"),
            "taken": queue.metric_number_of_messages_received(period=PERIOD),
        },
    )
    alarms.add(
        f"{name}Untaken",
        untaken,
        over=0,
        periods=math.ceil(of_class.target_seconds(role) / PERIOD.to_seconds()),
        section="oldest-message",
        says=f"Messages wait in {class_name}/{role}, and no process takes any.",
    )


def wait_alarms(alarms: AlarmFactory, config: Config) -> None:
    """Add alarms on the queue wait of runs that began. Runs that still wait have alarms on their messages."""
    for class_name, of_class in config.classes.items():
        targets: dict[tuple[str, ...], int] = {(lane,): of_class.target_seconds(lane) for lane in of_class.lanes}
        if not config.lane_metrics:
            targets = {(): max(targets.values())}
        for lane, target in targets.items():
            alarms.add(
                "".join(name.capitalize() for name in (class_name, *lane, "Wait")),
                own(Metric.QUEUE_WAIT, class_name, *lane, service=config.stack_name, statistic="Average"),
                over=1_000 * target,
                periods=3,
                section="queue-wait",
                says=f"Runs of {'/'.join((class_name, *lane))} waited longer than {target} s, on average, for a quarter"
                " of an hour.",
            )
