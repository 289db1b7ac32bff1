"""How an alarm is hung up: it tells the topic, and names the paragraph that says what to do."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

LATE_PERIODS = 1
"""Where an expression fills gaps, a series whose last point has not come yet reads as 0: SQS's and DynamoDB's points
come a minute or two late, and an alarm on the last period alone would miss them for ever (CloudWatch: an alarm goes by
the points there are). So the alarm looks at so many periods more than have to be over."""
ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD


class AlarmFactory:
    """Makes alarms in `scope` that tell `topic`; a `local` one leaves out those on metric math."""

    def __init__(self, scope: Construct, topic: sns.ITopic, *, local: bool) -> None:
        self._scope = scope
        self._topic = topic
        self._local = local

    def add(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        *,
        over: float,
        section: str,
        says: str,
        periods: int = 1,
        comparison: cloudwatch.ComparisonOperator = ABOVE,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """An alarm that `says` what is so when the metric is `over` this in so many periods, one after the other.

        An expression that fills gaps has one period more to be so in.
        """
        if self._local and isinstance(metric, cloudwatch.MathExpression):
            # The embedded emulator refuses an alarm on metric math, and the whole deployment with it.
            return
        alarm = cloudwatch.Alarm(
            self._scope,
            name,
            metric=metric,
            threshold=over,
            evaluation_periods=periods + (LATE_PERIODS if fills_gaps(metric) else 0),
            datapoints_to_alarm=periods,
            comparison_operator=comparison,
            treat_missing_data=missing,
            alarm_description=f"{says} See docs/operations.md#{section}",
        )
        alarm.add_alarm_action(actions.SnsAction(self._topic))


def fills_gaps(metric: cloudwatch.IMetric) -> bool:
    """Whether a series without a point counts as one of 0."""
    return isinstance(metric, cloudwatch.MathExpression) and "FILL(" in metric.expression
