"""The metrics for alarms and the dashboard: our own and those of queues."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from fanfold.service.telemetry.metrics import NAMESPACE, Dimensions, Metric

PERIOD = Duration.minutes(5)


def own(metric: Metric, *of: str, service: str, statistic: str = "Sum", label: str | None = None) -> cloudwatch.Metric:
    """One series of our own: `of` are its dimensions' values beside the deployment's name, `service`.

    Without `lane_metrics` the lane is missing. A metric for an alarm must have no label: CDK writes a label as
    metric math, which the embedded emulator refuses.
    """
    whole = metric.dimensions.value
    names = whole[:-1] if metric.dimensions is Dimensions.LANE and len(of) == 1 else whole
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.value,
        dimensions_map=dict(zip(names, (service, *of), strict=True)),
        statistic=statistic,
        period=PERIOD,
        label=label,
    )


def age(queue: sqs.Queue, label: str | None = None) -> cloudwatch.Metric:
    """The age of a queue's oldest message in seconds, the maximum of each period."""
    return queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum", label=label)


def visible(queue: sqs.Queue, label: str) -> cloudwatch.Metric:
    """The visible messages of a queue, the maximum of each period."""
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum", label=label)
