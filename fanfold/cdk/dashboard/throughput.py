"""Is work getting done?"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from fanfold.cdk.dashboard.inputs import Facts, graph, text
from fanfold.engine.record.run import Reason
from fanfold.service.telemetry.metrics import Metric

QUESTION = "Is work getting done?"
ENDS = (Metric.RUNS_SUCCEEDED, Metric.RUNS_FAILED, Metric.RUNS_CANCELLED)


def rows(facts: Facts) -> list[list[cloudwatch.IWidget]]:
    """Runs that began and ended by class, steps and items, and reasons of failures."""
    return [
        [
            text(
                QUESTION,
                "Started and ended should follow accepted. An accepted run that has not started waits (next row); one",
                "that has started but not ended is active or suspended. A retry is a failed attempt that is repeated,",
                "an interruption is an attempt whose worker died.",
            )
        ],
        [graph(f"Runs of class {name}", *_of_class(facts, name), unit="in 5 min") for name in facts.classes],
        [
            graph("Failed runs by reason", *(facts.own(Metric.FAILURES, r.value) for r in Reason), unit="in 5 min"),
            graph("Steps and items", *facts.by_class(Metric.STEPS), *facts.by_class(Metric.MAP_ITEMS), unit="in 5 min"),
            graph(
                "Retries and interruptions",
                *facts.by_class(Metric.RETRIES),
                *facts.by_class(Metric.INTERRUPTED),
                unit="in 5 min",
            ),
        ],
    ]


def _of_class(facts: Facts, class_name: str) -> list[cloudwatch.IMetric]:
    return [facts.own(metric, class_name, label=metric.value) for metric in (Metric.RUNS_STARTED, *ENDS)]
