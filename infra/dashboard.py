"""The dashboard: one page of graphs. Every graph more is free; every metric of our own costs $0.30 a month."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from functions.engine.message import RESUME
from infra.function import Function
from infra.metrics import PERIOD, age, counter, visible
from infra.queues import Queues

COUNTED = ("RunsAccepted", "RunsRefused", "RunsSucceeded", "RunsFailed", "RunsCancelled")
REPAIRED = (
    *("Crashes", "ClaimsLost", "Outages", "Repaired", "PlacesLeaked", "PlacesHealed"),
    *("DeadLetters", "Dropped", "Unreadable"),
)


class Dashboard(Construct):
    """Runs, repairs, answers; queues; functions."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        functions: Mapping[str, Function],
        queues: Mapping[str, Queues],
        http: gateway.HttpApi,
    ) -> None:
        super().__init__(scope, name)
        sources = [(f"{name}/{role}", q) for name, each in queues.items() for role, q in each.sources.items()]
        fresh = [(label, queue) for label, queue in sources if not label.endswith(f"/{RESUME}")]
        page = cloudwatch.Dashboard(self, "Page", default_interval=Duration.hours(3))
        page.add_widgets(
            _graph("Runs", [counter(name) for name in COUNTED]),
            _graph("Repaired", [counter(name) for name in REPAIRED]),
            _graph("Answers", [http.metric_server_error(period=PERIOD), http.metric_client_error(period=PERIOD)]),
        )
        page.add_widgets(
            _graph("Waiting, fresh", [visible(queue, label) for label, queue in fresh]),
            _graph("Waiting, all", [visible(queue, label) for label, queue in sources]),
            _graph("Oldest message, s", [age(queue, label) for label, queue in sources]),
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
