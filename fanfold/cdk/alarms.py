"""The alarms. Each notifies one topic and names its section in docs/operations.md."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from fanfold.cdk.alarm_factory import AlarmFactory
from fanfold.cdk.api_gateway import ApiGateway
from fanfold.cdk.config import Config
from fanfold.cdk.function import Function
from fanfold.cdk.metrics import PERIOD, own
from fanfold.cdk.queue_alarms import queue_alarms, wait_alarms
from fanfold.cdk.queues import Queues
from fanfold.cdk.table import DUE_INDEX, LIST_INDEX, Table
from fanfold.service.telemetry.metrics import Metric

FAILED_PERCENT = 20
FAILED_LEAST = 5
"""The alarm needs a share of failed runs and a least number: one tenant's wrong workflow must not page anybody."""
TURN_LIMIT_SECONDS = 43_200
"""The sweeper checks a million runs in about eight hours. A queued run whose message was lost waits for that check."""
THROTTLES_LEAST = 10
"""A burst throttles a few calls while Lambda scales by 1,000 per 10 s; which is normal."""
REFUSED_LEAST = 100
"""Refused submits in five minutes. A short burst at the bound is normal."""
TABLE_THROTTLES_LEAST = 10
"""A table on demand refuses a few calls while it grows; each is tried again."""
FAILURES_LEAST = 10
"""Requests in five minutes that were answered with 500 or more; a few during a deployment are normal."""
MATH_METRICS = 10
"""An alarm on metric math takes no more metrics (CloudWatch quotas)."""
OVERDUE_LIMIT_SECONDS = 600
"""Ten passes of the sweeper, in which it sent wakes that no worker received."""


class Alarms(Construct):
    """All alarms (docs/decisions/0012). They notify one topic; `alarm_email` subscribes to it."""

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
        gateway: ApiGateway,
    ) -> None:
        super().__init__(scope, name)
        self._service = config.stack_name
        self.topic = sns.Topic(self, "Topic", enforce_ssl=True)
        # This policy replaces the topic's default policy, which admits the account's services. So it names CloudWatch.
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
        if config.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(config.alarm_email))
        self._alarms = AlarmFactory(self, self.topic, local=config.local)
        self._api_alarm(gateway)
        queue_alarms(self._alarms, queues, config)
        wait_alarms(self._alarms, config)
        self._function_alarms(functions, config)
        self._sweeper_alarm(sweeper)
        self._run_alarms(config)
        self._task_alarm()
        self._recursion_alarms(functions)
        self._table_alarm(table)

    def _api_alarm(self, gateway: ApiGateway) -> None:
        self._alarms.add(
            "FailedRequests",
            gateway.failures,
            over=FAILURES_LEAST,
            periods=2,
            section="failed-requests",
            says=f"More than {FAILURES_LEAST} requests in five minutes are answered with 500 or more, for ten minutes.",
        )

    def _function_alarms(self, functions: Mapping[str, Function], config: Config) -> None:
        for name, each in functions.items():
            self._alarms.add(
                f"{name.title().replace('-', '')}Errors",
                each.function.metric_errors(period=PERIOD),
                over=0,
                section="function-errors",
                says=f"The function {name} raised or was killed.",
            )
        # `map_concurrency` throttles calls all day, and they are repeated: no item fails.
        bounded = {f"fanout-{name}" for name, given in config.classes.items() if given.map_concurrency is not None}
        several = [(name, each) for name, each in functions.items() if name not in bounded]
        for number, start in enumerate(range(0, len(several), MATH_METRICS), 1):
            part = dict(several[start : start + MATH_METRICS])
            throttles = cloudwatch.MathExpression(
                expression="+".join(f"m{n}" for n in range(len(part))),
                label="throttled calls",
                period=PERIOD,
                using_metrics={
                    f"m{n}": each.function.metric_throttles(period=PERIOD) for n, each in enumerate(part.values())
                },
            )
            self._alarms.add(
                "Throttles" if number == 1 else f"Throttles{number}",
                throttles,
                over=THROTTLES_LEAST,
                periods=3,
                section="throttled-functions",
                says=f"Lambda throttles {', '.join(part)}, or some of them, for a quarter of an hour.",
            )

    def _sweeper_alarm(self, sweeper: Function) -> None:
        self._alarms.add(
            "SweeperSilent",
            sweeper.function.metric_invocations(period=PERIOD),
            over=1,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,
            section="sweeper-silent",
            says="The sweeper has not run for five minutes.",
        )
        self._alarms.add(
            "SweeperSlow",
            own(Metric.SWEEP_TURN_SECONDS, service=self._service, statistic="Maximum"),
            over=TURN_LIMIT_SECONDS,
            section="sweeper-slow",
            says=f"The sweeper takes longer than {TURN_LIMIT_SECONDS // 3_600} hours to check every active run.",
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
            self._alarms.add(
                f"{name.capitalize()}FailedRuns",
                share,
                over=FAILED_PERCENT,
                section="failed-runs",
                says=f"More than {FAILED_PERCENT} % of the runs of class {name} that ended failed.",
            )
            self._alarms.add(
                f"{name.capitalize()}StuckRuns",
                own(Metric.OVERDUE, name, service=self._service, statistic="Maximum"),
                over=OVERDUE_LIMIT_SECONDS,
                section="stuck-runs",
                says=f"No worker has claimed an overdue run of class {name} for {OVERDUE_LIMIT_SECONDS // 60} minutes.",
            )
        self._alarms.add(
            "Refusals",
            own(Metric.RUNS_REFUSED, service=self._service),
            over=REFUSED_LEAST,
            periods=3,
            section="refused-submits",
            says=f"More than {REFUSED_LEAST} submits are refused in five minutes, for a quarter of an hour.",
        )

    def _task_alarm(self) -> None:
        self._alarms.add(
            "TasksNotLoaded",
            own(Metric.TASKS_NOT_LOADED, service=self._service),
            over=0,
            section="tasks-not-loaded",
            says="A module of tasks can't be imported, or a run calls a task that the deployed code lacks.",
        )

    def _recursion_alarms(self, functions: Mapping[str, Function]) -> None:
        for name, each in functions.items():
            if each.in_queue_loop:
                self._alarms.add(
                    f"{name.title().replace('-', '')}Dropped",
                    each.function.metric("RecursiveInvocationsDropped", statistic="Sum", period=PERIOD),
                    over=0,
                    section="dropped-invocations",
                    says=f"Lambda dropped messages for {name}: recursive loop detection is on.",
                )

    def _table_alarm(self, table: Table) -> None:
        name = {"TableName": table.table.table_name}
        metrics = {
            "reads": _throttled("ReadThrottleEvents", name),
            "writes": _throttled("WriteThrottleEvents", name),
            "listed": _throttled("WriteThrottleEvents", {**name, "GlobalSecondaryIndexName": LIST_INDEX}),
            "due": _throttled("WriteThrottleEvents", {**name, "GlobalSecondaryIndexName": DUE_INDEX}),
        }
        self._alarms.add(
            "TableThrottles",
            cloudwatch.MathExpression(
                # A series without events has no data, and a sum with a gap is a gap.
                expression=" + ".join(f"FILL({key}, 0)" for key in metrics),
                label="throttled table calls",
                period=PERIOD,
                using_metrics=metrics,
            ),
            over=TABLE_THROTTLES_LEAST,
            periods=2,
            section="table-throttles",
            says="DynamoDB throttles the table or an index, in two of three times five minutes.",
        )


def _throttled(name: str, dimensions: Mapping[str, str]) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB", metric_name=name, dimensions_map=dict(dimensions), statistic="Sum", period=PERIOD
    )
