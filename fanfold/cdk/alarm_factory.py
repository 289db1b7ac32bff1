"""Creates alarms that notify the topic and name the section of docs/operations.md that says what to do."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

LATE_PERIODS = 1
"""Further periods that an alarm evaluates if its expression fills gaps. SQS and DynamoDB publish points a minute or two
late, and until then the expression reads 0. An alarm on the last period alone would never see the late points
(CloudWatch evaluates the points that exist)."""
ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD


class AlarmFactory:
    """Creates alarms in `scope` that notify `topic`. A `local` factory leaves out alarms on metric math."""

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
        """Add an alarm that goes off when the metric is `over` a threshold in so many consecutive periods.

        `says` is its description, `section` the heading in docs/operations.md. An expression that fills gaps may be
        over in any so many of one period more.
        """
        if self._local and isinstance(metric, cloudwatch.MathExpression):
            # The embedded emulator refuses a deployment with an alarm on metric math.
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
    """Whether the metric counts a missing point as 0."""
    return isinstance(metric, cloudwatch.MathExpression) and "FILL(" in metric.expression
