"""Are users served?"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from fanfold.cdk.dashboard.inputs import Facts, graph, text
from fanfold.service.telemetry.metrics import Metric, Refusal

QUESTION = "Are users served?"


def rows(facts: Facts) -> list[list[cloudwatch.IWidget]]:
    """Requests, their latency, accepted and refused runs."""
    reasons = [facts.own(Metric.REFUSALS, reason.value) for reason in Refusal]
    return [
        [
            text(
                QUESTION,
                "500 and more are failures of the service; 400 and more are wrong requests and refusals (429).",
                "`queue_full`: more runs arrive than workers can do. `rate_limited`: one tenant sends too fast.",
                "`unavailable`: an AWS service throttled or failed.",
            )
        ],
        [
            graph("Requests", facts.gateway.requests, *facts.gateway.errors, width=6, unit="in 5 min"),
            graph("Answered within", *(facts.gateway.latency(p) for p in ("p50", "p95", "p99")), width=6, unit="ms"),
            graph(
                "Runs accepted",
                *(facts.own(Metric.RUNS_ACCEPTED, name) for name in facts.classes),
                width=6,
                unit="in 5 min",
                stacked=True,
            ),
            graph("Submits refused", facts.own(Metric.RUNS_REFUSED), *reasons, width=6, unit="in 5 min"),
        ],
    ]
