"""The metrics that alarms and the dashboard look at: our own counters, and queues as SQS sees them."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

NAMESPACE = "Fanfold"
SERVICE = "fanfold"
PERIOD = Duration.minutes(5)


def counter(name: str, *, statistic: str = "Sum", labelled: bool = True) -> cloudwatch.Metric:
    """One of our own metrics, summed; the only dimension is the service, because each series costs money.

    For an alarm it must not be `labelled`: CDK writes a label as metric math, which the embedded emulator refuses.
    """
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"service": SERVICE},
        statistic=statistic,
        period=PERIOD,
        label=name if labelled else None,
    )


def age(queue: sqs.Queue, label: str | None = None) -> cloudwatch.Metric:
    """The age of a queue's oldest message in seconds, the most in each period."""
    return queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum", label=label)


def visible(queue: sqs.Queue, label: str) -> cloudwatch.Metric:
    """The messages of a queue that nobody has taken yet, the most in each period."""
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum", label=label)
