"""The alarms: each tells a topic, and says where docs/operations.md tells what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from functions.runtime.metrics import Metric
from infra.config import Config
from infra.function import Function
from infra.metrics import PERIOD, age, own
from infra.queues import Queues
from infra.table import DUE_INDEX, LIST_INDEX, Table

ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
FAILED_PERCENT = 20
FAILED_LEAST = 5
"""Failed runs are alarming as a share, and only when there are a few: one tenant's wrong workflow wakes nobody."""
TURN_LIMIT_SECONDS = 43_200
"""The sweeper looks at a million runs in about eight hours; a queued run whose message is lost waits for its turn."""
THROTTLES_LEAST = 10
"""A burst throttles a few calls while Lambda scales by 1,000 per 10 s; that is no fault."""
REFUSED_LEAST = 100
"""Refused submits in five minutes; a burst at the bound is what the bound is for."""
OVERDUE_LIMIT_SECONDS = 600
"""Ten passes of the sweeper: what it rang for and nobody came for."""


class Alarms(Construct):
    """What must be noticed (docs/decisions/0012), told to one topic; `alarm_email` is subscribed to it when given."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        functions: Mapping[str, Function],
        sweeper: Function,
        queues: Mapping[str, Queues],
        config: Config,
        table: Table,
    ) -> None:
        super().__init__(scope, name)
        self._local = config.local
        self._service = config.stack_name
        self.topic = sns.Topic(self, "Topic", enforce_ssl=True)
        if config.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(config.alarm_email))
        self._queue_alarms(queues, config)
        self._function_alarms(functions)
        self._sweeper_alarm(sweeper)
        self._run_alarms(config)
        self._recursion_alarms(functions)
        self._table_alarm(table)

    def _alarm(
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
        if self._local and isinstance(metric, cloudwatch.MathExpression):
            # The embedded emulator refuses an alarm on metric math, and the whole deployment with it.
            return
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=over,
            evaluation_periods=periods,
            comparison_operator=comparison,
            treat_missing_data=missing,
            alarm_description=f"{says} See docs/operations.md#{section}",
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))

    def _queue_alarms(self, queues: Mapping[str, Queues], config: Config) -> None:
        for class_name, each in queues.items():
            # Letters are taken at once, so "visible" alone would miss them; one that stays is received again and again.
            letters = cloudwatch.MathExpression(
                expression="FILL(received, 0) + FILL(visible, 0)",
                label=f"{class_name}: dead letters",
                period=PERIOD,
                using_metrics={
                    "received": each.dead.metric_number_of_messages_received(period=PERIOD),
                    "visible": each.dead.metric_approximate_number_of_messages_visible(period=PERIOD),
                },
            )
            self._alarm(
                f"{class_name.capitalize()}DeadLetters",
                letters,
                over=0,
                section="dead-letters",
                says=f"Messages of class {class_name} were received too often.",
            )
            for role, queue in each.sources.items():
                self._waiting_alarm(f"{class_name.capitalize()}{role.capitalize()}", class_name, role, queue, config)

    def _waiting_alarm(self, name: str, class_name: str, role: str, queue: sqs.Queue, config: Config) -> None:
        of_class = config.classes[class_name]
        if of_class.pool == "lambda":
            limit = of_class.age_limit_seconds(role)
            self._alarm(
                f"{name}Age",
                age(queue),
                over=limit,
                section="oldest-message",
                says=f"A message in {class_name}/{role} is older than {limit} s.",
            )
            return
        # A process works on a run for as long as it takes: an age says nothing. That nobody takes anything does.
        untaken = cloudwatch.MathExpression(
            expression="IF(FILL(taken, 0) < 1, FILL(waiting, 0), 0)",
            label=f"{class_name}/{role}: waiting, none taken",
            period=PERIOD,
            using_metrics={
                "waiting": queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Minimum"),
                "taken": queue.metric_number_of_messages_received(period=PERIOD),
            },
        )
        self._alarm(
            f"{name}Untaken",
            untaken,
            over=0,
            periods=math.ceil(of_class.target_seconds(role) / PERIOD.to_seconds()),
            section="oldest-message",
            says=f"Messages wait in {class_name}/{role}, and no process takes any.",
        )

    def _function_alarms(self, functions: Mapping[str, Function]) -> None:
        for name, each in functions.items():
            self._alarm(
                f"{name.title().replace('-', '')}Errors",
                each.function.metric_errors(period=PERIOD),
                over=0,
                section="function-errors",
                says=f"The function {name} raised or was killed.",
            )
        throttles = cloudwatch.MathExpression(
            expression="+".join(f"m{n}" for n in range(len(functions))),
            label="throttled calls",
            period=PERIOD,
            using_metrics={
                f"m{n}": each.function.metric_throttles(period=PERIOD) for n, each in enumerate(functions.values())
            },
        )
        self._alarm(
            "Throttles",
            throttles,
            over=THROTTLES_LEAST,
            periods=3,
            section="throttled-functions",
            says="Lambda throttles our functions for a quarter of an hour.",
        )

    def _sweeper_alarm(self, sweeper: Function) -> None:
        self._alarm(
            "SweeperSilent",
            sweeper.function.metric_invocations(period=PERIOD),
            over=1,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,
            section="sweeper-silent",
            says="The sweeper has not run for five minutes.",
        )
        self._alarm(
            "SweeperSlow",
            own(Metric.SWEEP_TURN_SECONDS, service=self._service, statistic="Maximum"),
            over=TURN_LIMIT_SECONDS,
            section="sweeper-slow",
            says=f"The sweeper takes longer than {TURN_LIMIT_SECONDS // 3_600} hours to look at every run.",
        )

    def _run_alarms(self, config: Config) -> None:
        for name in config.classes:
            share = cloudwatch.MathExpression(
                expression=f"IF(failed >= {FAILED_LEAST}, 100 * failed / (failed + FILL(succeeded, 0)), 0)",
                label=f"{name}: failed runs, percent",
                period=PERIOD,
                using_metrics={
                    "failed": own(Metric.RUNS_FAILED, name, service=self._service),
                    "succeeded": own(Metric.RUNS_SUCCEEDED, name, service=self._service),
                },
            )
            self._alarm(
                f"{name.capitalize()}FailedRuns",
                share,
                over=FAILED_PERCENT,
                section="failed-runs",
                says=f"More than {FAILED_PERCENT} % of the runs of class {name} that ended failed.",
            )
            self._alarm(
                f"{name.capitalize()}StuckRuns",
                own(Metric.OVERDUE, name, service=self._service, statistic="Maximum"),
                over=OVERDUE_LIMIT_SECONDS,
                section="stuck-runs",
                says=f"Nobody has come for a run of class {name} for {OVERDUE_LIMIT_SECONDS // 60} minutes.",
            )
        self._alarm(
            "Refusals",
            own(Metric.RUNS_REFUSED, service=self._service),
            over=REFUSED_LEAST,
            periods=3,
            section="refused-submits",
            says=f"More than {REFUSED_LEAST} submits are refused in five minutes, for a quarter of an hour.",
        )

    def _recursion_alarms(self, functions: Mapping[str, Function]) -> None:
        for name, each in functions.items():
            if each.in_queue_loop:
                self._alarm(
                    f"{name.title().replace('-', '')}Dropped",
                    each.function.metric("RecursiveInvocationsDropped", statistic="Sum", period=PERIOD),
                    over=0,
                    section="dropped-invocations",
                    says=f"Lambda dropped messages for {name}, taking it for a runaway loop.",
                )

    def _table_alarm(self, table: Table) -> None:
        name = {"TableName": table.table.table_name}
        metrics = {
            "reads": _throttled("ReadThrottleEvents", name),
            "writes": _throttled("WriteThrottleEvents", name),
            "listed": _throttled("WriteThrottleEvents", {**name, "GlobalSecondaryIndexName": LIST_INDEX}),
            "due": _throttled("WriteThrottleEvents", {**name, "GlobalSecondaryIndexName": DUE_INDEX}),
        }
        self._alarm(
            "TableThrottles",
            cloudwatch.MathExpression(
                # A series without events has no data, and a sum with a gap is a gap.
                expression=" + ".join(f"FILL({key}, 0)" for key in metrics),
                label="throttled table calls",
                period=PERIOD,
                using_metrics=metrics,
            ),
            over=0,
            section="table-throttles",
            says="DynamoDB throttles the table or an index.",
        )


def _throttled(name: str, dimensions: Mapping[str, str]) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB", metric_name=name, dimensions_map=dict(dimensions), statistic="Sum", period=PERIOD
    )
