"""What is about to break?"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from fanfold.cdk.dashboard.inputs import Facts, graph, text
from fanfold.cdk.metrics import PERIOD
from fanfold.service.telemetry.metrics import FunctionName, Metric

QUESTION = "What is about to break?"
HEALED = (Metric.REPAIRED, Metric.SLOTS_LEAKED, Metric.SLOTS_REPAIRED, Metric.EFFECTS_FAILED, Metric.DUPLICATES)
MESSAGES = (
    Metric.DEAD_LETTERS,
    Metric.DROPPED,
    Metric.UNREADABLE,
    Metric.TASKS_NOT_LOADED,
    Metric.OUTAGES,
    Metric.CLOCK_OFF,
)
HANDS = (Metric.CRASHES, Metric.RUNS_LOST, Metric.FENCED_WRITES, Metric.CLAIMS_LOST)


def rows(facts: Facts) -> list[list[cloudwatch.IWidget]]:
    """Repairs and their number, problems that stay, and errors of functions."""
    own = facts.own
    return [
        [
            text(
                QUESTION,
                "Fanfold repairs all of the first row by itself; more than usual is a sign. Crashes: a worker that",
                "held a run died. RunsLost: a holder renewed too late, or froze. Outages: messages returned because",
                "a service failed. Overdue: how long a due run has waited for a worker; minutes mean that it is stuck.",
                "What each alarm means is in docs/operations.md.",
            )
        ],
        [
            graph("Runs that changed hands", *(s for m in HANDS for s in facts.by_class(m)), unit="in 5 min"),
            graph("Repairs and repetitions", *(own(metric) for metric in HEALED), unit="in 5 min"),
            graph("Messages in trouble", *(own(metric) for metric in MESSAGES), unit="in 5 min"),
        ],
        [
            graph(
                "Overdue runs",
                *(own(Metric.OVERDUE, name, statistic="Maximum", label=name) for name in facts.classes),
                unit="s",
            ),
            graph("The sweeper's turn", own(Metric.SWEEP_TURN_SECONDS, statistic="Maximum"), unit="s"),
            graph("Lease renewals", *facts.by_class(Metric.LEASE_RENEWALS), unit="in 5 min"),
        ],
        [
            graph("Errors of functions", *_functions(facts, "errors"), width=6, unit="in 5 min"),
            graph("Throttled calls of functions", *_functions(facts, "throttles"), width=6, unit="in 5 min"),
            graph("Duration of functions, p95", *_functions(facts, "duration"), width=6, unit="ms"),
            graph("Cold starts", *(own(Metric.COLD_STARTS, n.value) for n in FunctionName), width=6, unit="in 5 min"),
        ],
    ]


def _functions(facts: Facts, what: str) -> list[cloudwatch.Metric]:
    match what:
        case "errors":
            return [f.function.metric_errors(period=PERIOD, label=name) for name, f in facts.functions.items()]
        case "throttles":
            return [f.function.metric_throttles(period=PERIOD, label=name) for name, f in facts.functions.items()]
        case _:
            return [
                f.function.metric_duration(period=PERIOD, label=name, statistic="p95")
                for name, f in facts.functions.items()
            ]
