"""Is it done in time?"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from fanfold.cdk.dashboard.inputs import Facts, graph, text
from fanfold.cdk.metrics import age, visible
from fanfold.service.telemetry.metrics import Metric

QUESTION = "Is it done in time?"
PERCENTILES = ("p50", "p95", "p99")


def rows(facts: Facts) -> list[list[cloudwatch.IWidget]]:
    """For each class: the wait before the first claim, messages, duration of runs, and the engine's own part."""
    heading = text(
        QUESTION,
        "Queue wait: from when a run may begin to its first claim. Runs that still wait are visible",
        "in the messages. A message stays until its run ends or suspends; the line is the threshold of the age alarm.",
        "Run duration: from acceptance to the end, waits included. Engine overhead: a worker's time for a run",
        "without its tasks, with calls to AWS.",
    )
    return [[heading], *(row for name in facts.classes for row in _of_class(facts, name))]


def _of_class(facts: Facts, name: str) -> list[list[cloudwatch.IWidget]]:
    config = facts.config.classes[name]
    waits = [
        facts.own(Metric.QUEUE_WAIT, name, *lane, statistic=p, label=" ".join((*lane, p)))
        for lane in ([(lane,) for lane in config.lanes] if facts.config.lane_metrics else [()])
        for p in PERCENTILES
    ]
    aged = config.pool == "lambda" and facts.config.mappings
    limits = {config.age_limit_seconds(r): r for r, _ in facts.sources(name)} if aged else {}
    lines = [cloudwatch.HorizontalAnnotation(value=value, label=f"{role} alarms") for value, role in limits.items()]
    return [
        [
            graph(f"{name}: queue wait", *waits, unit="ms"),
            graph(f"{name}: messages waiting", *(visible(q, role) for role, q in facts.sources(name)), unit="messages"),
            graph(f"{name}: oldest message", *(age(q, role) for role, q in facts.sources(name)), unit="s", lines=lines),
        ],
        [
            graph(f"{name}: run duration", *_distribution(facts, Metric.RUN_DURATION, name), width=12, unit="ms"),
            graph(f"{name}: engine overhead", *_distribution(facts, Metric.ENGINE_OVERHEAD, name), width=12, unit="ms"),
        ],
    ]


def _distribution(facts: Facts, metric: Metric, class_name: str) -> list[cloudwatch.Metric]:
    return [facts.own(metric, class_name, statistic=p, label=p) for p in PERCENTILES]
