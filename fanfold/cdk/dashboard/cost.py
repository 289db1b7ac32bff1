"""What does it cost?"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_cloudwatch as cloudwatch

from fanfold.cdk import prices
from fanfold.cdk.dashboard.inputs import Facts, graph, text
from fanfold.cdk.metrics import PERIOD
from fanfold.service.telemetry.metrics import Metric

QUESTION = "What does it cost?"
PERIODS_PER_HOUR = 12
"""Periods of five minutes (`PERIOD`) in an hour. The page keeps this period whatever time it shows."""
ENDS = (Metric.RUNS_SUCCEEDED, Metric.RUNS_FAILED, Metric.RUNS_CANCELLED)

Terms = Mapping[str, tuple[cloudwatch.IMetric, float]]
"""By its id in an expression: a series, and the price of one."""


def rows(facts: Facts) -> list[list[cloudwatch.IWidget]]:
    """Dollars an hour by part, dollars for a thousand runs, and table units of a run."""
    parts = {name: _cost(name, limits) for name, limits in _limits(facts).items()}
    runs = facts.total("ended", [series for metric in ENDS for series in facts.by_class(metric)])
    total = cloudwatch.MathExpression(
        expression=f"1000 * ({' + '.join(parts)}) / {PERIODS_PER_HOUR} / runs",
        label="$ for 1,000 runs",
        period=PERIOD,
        using_metrics={**parts, "runs": runs},
    )
    return [
        [
            text(
                QUESTION,
                "An estimate: counts times us-east-1's on-demand prices, without storage, logs, metrics and alarms,",
                "data transfer, polls of idle queues (about $2 a month), and what tasks call.",
            )
        ],
        [
            graph("Estimated cost by part", *parts.values(), unit="$ per hour", stacked=True),
            graph("Cost of ended runs", total, unit="$"),
            graph("The table's part of a run", *_per_run(facts, runs), unit="per ended run"),
        ],
    ]


def _cost(name: str, limits: Terms) -> cloudwatch.MathExpression:
    spent = " + ".join(f"FILL({key}, 0) * {price:.12f}" for key, (_, price) in limits.items())
    return cloudwatch.MathExpression(
        expression=f"{PERIODS_PER_HOUR} * ({spent})",
        label=name,
        period=PERIOD,
        using_metrics={key: metric for key, (metric, _) in limits.items()},
    )


def _limits(facts: Facts) -> Mapping[str, Terms]:
    """The parts of the cost, each with its counts."""
    own = facts.own
    return {
        "table": {
            "writes": (own(Metric.TABLE_WRITE_UNITS), prices.WRITE_UNIT),
            "reads": (own(Metric.TABLE_READ_UNITS), prices.READ_UNIT),
        },
        "functions": _functions(facts),
        "queues": {"messages": (own(Metric.QUEUE_CALLS), prices.QUEUE_REQUEST)},
        "bucket": {
            "stored": (own(Metric.BUCKET_WRITES), prices.BUCKET_WRITE),
            "fetched": (own(Metric.BUCKET_READS), prices.BUCKET_READ),
        },
        "maps": {"batches": (own(Metric.MAP_BATCHES), prices.MAP_BATCH)},
        "api": {"requests": (facts.gateway.requests, prices.API_REQUEST[facts.config.api])},
    }


def _functions(facts: Facts) -> Terms:
    limits: dict[str, tuple[cloudwatch.IMetric, float]] = {}
    for number, function in enumerate(facts.functions.values()):
        gigabytes = function.memory_mb / 1_024
        of_millisecond = gigabytes * prices.GB_SECOND[facts.config.architecture] / 1_000
        duration = function.function.metric_duration(period=PERIOD, statistic="Sum")
        limits[f"time{number}"] = (duration, of_millisecond)
        limits[f"invoked{number}"] = (function.function.metric_invocations(period=PERIOD), prices.INVOCATION)
    return limits


def _per_run(facts: Facts, runs: cloudwatch.MathExpression) -> list[cloudwatch.MathExpression]:
    """All calls of the deployment, divided by the runs that ended. Polls by clients are included."""
    shown = {
        "calls": (Metric.TABLE_CALLS, "calls"),
        "written": (Metric.TABLE_WRITE_UNITS, "write units"),
        "read": (Metric.TABLE_READ_UNITS, "read units"),
    }
    return [
        cloudwatch.MathExpression(
            expression=f"FILL({key}, 0) / runs",
            label=label,
            period=PERIOD,
            using_metrics={key: facts.own(metric), "runs": runs},
        )
        for key, (metric, label) in shown.items()
    ]
