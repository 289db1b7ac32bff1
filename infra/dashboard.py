"""The first dashboard, and the alarms: each says where docs/operations.md tells what to do."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from functions.engine.message import RESUME
from infra.config import Config
from infra.function import Function
from infra.queues import Queues
from infra.table import DUE_INDEX, LIST_INDEX, Table

NAMESPACE = "Fanfold"
SERVICE = "fanfold"
COUNTED = ("RunsAccepted", "RunsRefused", "RunsSucceeded", "RunsFailed", "RunsCancelled")
REPAIRED = ("Crashes", "ClaimsLost", "Outages", "Repaired", "DeadLetters", "Dropped", "Unreadable")
PERIOD = Duration.minutes(5)
ALWAYS = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
FAILED_PERCENT = 20
FAILED_LEAST = 5
"""Failed runs are alarming as a share, and only when there are a few: one tenant's wrong workflow wakes nobody."""
THROTTLES_LEAST = 10
"""A burst throttles a few calls while Lambda scales by 1,000 per 10 s; that is no fault."""


def counter(name: str) -> cloudwatch.Metric:
    """One of our own metrics, summed; the only dimension is the service, because each series costs money."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"service": SERVICE},
        statistic="Sum",
        period=PERIOD,
        label=name,
    )


class Dashboard(Construct):
    """A topic for alarms (`email` is subscribed when given), the alarms, and one page of graphs."""

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
        http: gateway.HttpApi,
        email: str,
    ) -> None:
        super().__init__(scope, name)
        self._local = config.local
        self.topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        if email:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self._queue_alarms(queues, config)
        self._function_alarms(functions, sweeper)
        self._run_alarm()
        self._table_alarm(table)
        self._page(functions, queues, http)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        *,
        over: float,
        section: str,
        says: str,
        periods: int = 1,
        comparison: cloudwatch.ComparisonOperator = ALWAYS,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        if self._local and isinstance(metric, cloudwatch.MathExpression):
            return  # the emulator refuses an alarm on metric math, and the whole deployment with it
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
                expression="received + visible",
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
            # A message stays until its run ends or suspends, so one function's whole life is a normal age.
            limit = 2 * config.classes[class_name].timeout_seconds
            for role, queue in each.sources.items():
                self._alarm(
                    f"{class_name.capitalize()}{role.capitalize()}Age",
                    _age(queue),
                    over=limit,
                    section="oldest-message",
                    says=f"A message in {class_name}/{role} is older than {limit} s.",
                )

    def _function_alarms(self, functions: Mapping[str, Function], sweeper: Function) -> None:
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
        self._alarm(
            "SweeperSilent",
            sweeper.function.metric_invocations(period=PERIOD),
            over=1,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,
            section="sweeper-silent",
            says="The sweeper has not run for five minutes.",
        )

    def _run_alarm(self) -> None:
        share = cloudwatch.MathExpression(
            expression=f"IF(failed >= {FAILED_LEAST}, 100 * failed / (failed + FILL(succeeded, 0)), 0)",
            label="failed runs, percent",
            period=PERIOD,
            using_metrics={"failed": counter("RunsFailed"), "succeeded": counter("RunsSucceeded")},
        )
        self._alarm(
            "FailedRuns",
            share,
            over=FAILED_PERCENT,
            section="failed-runs",
            says=f"More than {FAILED_PERCENT} % of the runs that ended failed.",
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

    def _page(self, functions: Mapping[str, Function], queues: Mapping[str, Queues], http: gateway.HttpApi) -> None:
        sources = [(f"{name}/{role}", q) for name, each in queues.items() for role, q in each.sources.items()]
        fresh = [(label, queue) for label, queue in sources if not label.endswith(f"/{RESUME}")]
        page = cloudwatch.Dashboard(self, "Page", default_interval=Duration.hours(3))
        page.add_widgets(
            _graph("Runs", [counter(name) for name in COUNTED]),
            _graph("Repaired", [counter(name) for name in REPAIRED]),
            _graph("Answers", [http.metric_server_error(period=PERIOD), http.metric_client_error(period=PERIOD)]),
        )
        page.add_widgets(
            _graph("Waiting, fresh", [_visible(queue, label) for label, queue in fresh]),
            _graph("Waiting, all", [_visible(queue, label) for label, queue in sources]),
            _graph("Oldest message, s", [_age(queue, label) for label, queue in sources]),
        )
        page.add_widgets(
            _graph("Errors", [f.function.metric_errors(period=PERIOD, label=name) for name, f in functions.items()]),
            _graph("Throttles", [f.function.metric_throttles(period=PERIOD, label=n) for n, f in functions.items()]),
            _graph(
                "Duration p95, ms",
                [
                    f.function.metric_duration(period=PERIOD, label=name, statistic="p95")
                    for name, f in functions.items()
                ],
            ),
        )


def _graph(title: str, metrics: list[cloudwatch.Metric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8, height=6)


def _age(queue: sqs.Queue, label: str | None = None) -> cloudwatch.Metric:
    return queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum", label=label)


def _visible(queue: sqs.Queue, label: str) -> cloudwatch.Metric:
    return queue.metric_approximate_number_of_messages_visible(period=PERIOD, label=label)


def _throttled(name: str, dimensions: Mapping[str, str]) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB", metric_name=name, dimensions_map=dict(dimensions), statistic="Sum", period=PERIOD
    )
