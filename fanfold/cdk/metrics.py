"""The metrics that alarms and the dashboard look at: our own, by the names they are written under, and the queues'."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from fanfold.service.telemetry.metrics import NAMESPACE, Dimensions, Metric

PERIOD = Duration.minutes(5)


def own(metric: Metric, *of: str, service: str, statistic: str = "Sum", label: str | None = None) -> cloudwatch.Metric:
    """One series of our own: `of` are its dimensions' values beside the deployment's name, `service`.

    A lane may be missing in the end: that is how it is told where the setting `lane_metrics` is off.
    For an alarm it must not have a label: CDK writes a label as metric math, which the embedded emulator refuses.
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
    """The age of a queue's oldest message in seconds, the most in each period."""
    return queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum", label=label)


def visible(queue: sqs.Queue, label: str) -> cloudwatch.Metric:
    """The messages of a queue that nobody has taken yet, the most in each period."""
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum", label=label)
