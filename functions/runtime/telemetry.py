"""What the service says about itself: JSON log lines, and counters as CloudWatch embedded metrics.

Costs about 60 ms of cold start: Powertools, most of it `typing_extensions` and `jmespath`. The
tracer's own SDK is not loaded, nor is pydantic.
"""

from __future__ import annotations

import logging
import sys
import threading
from enum import StrEnum
from functools import cache
from typing import TextIO

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics

SERVICE = "fanfold"
NAMESPACE = "Fanfold"


class Metric(StrEnum):
    """Everything that is counted, under its CloudWatch name.

    The only dimension is the service: ids and tenants would cost a series each.
    """

    RUNS_ACCEPTED = "RunsAccepted"
    RUNS_REFUSED = "RunsRefused"  # answered 429: the class's queue was full
    RUNS_SUCCEEDED = "RunsSucceeded"
    RUNS_FAILED = "RunsFailed"
    RUNS_CANCELLED = "RunsCancelled"
    CLAIMS_LOST = "ClaimsLost"  # somebody else had the run
    CRASHES = "Crashes"  # a claim found a running record with a dead lease
    PLACES_LEAKED = "PlacesLeaked"  # a place could not be returned; the bound is one short until it is healed
    PLACES_HEALED = "PlacesHealed"  # leaked places that the sweeper gave back to their class's bound
    DUPLICATES = "Duplicates"  # messages and submits that only repeated what had been done
    OUTAGES = "Outages"  # messages put back because a service did not do its part
    DROPPED = "Dropped"  # messages given up on purpose: dead letters of runs that are further on, envelopes too old
    REPAIRED = "Repaired"  # what the sweeper found in need: lost wakes, dead leases, expired and stranded queued runs
    DEAD_LETTERS = "DeadLetters"  # messages that reached a dead-letter queue
    UNREADABLE = "Unreadable"  # messages whose body is none of ours, or is newer than this code
    SWEEP_TURN_SECONDS = "SweepTurnSeconds"  # how long the sweeper's cursor took for all active runs

    @property
    def unit(self) -> str:
        """The CloudWatch unit."""
        return "Seconds" if self.value.endswith("Seconds") else "Count"


class _Output(logging.StreamHandler[TextIO]):
    """Writes to whatever standard output is at that moment, not to what it was when the logger was made."""

    @property
    def stream(self) -> TextIO:
        return sys.stdout

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """The base class sets it; where to write is not its choice."""


@cache
def logger() -> Logger:
    """The one logger: a JSON object a line on standard output; `extra` adds keys. INFO until `set_level`."""
    return Logger(service=SERVICE, level="INFO", logger_handler=_Output(), utc=True, use_rfc3339=True)


def set_level(level: str) -> None:
    """Log from this level on (`settings.log_level`); raises ValueError for a name that is none."""
    logger().setLevel(level.upper())


_lock = threading.Lock()
_values: dict[Metric, float] = {}


def count(metric: Metric, value: float = 1) -> None:
    """Adds to a counter. Nothing is written before `flush`."""
    with _lock:
        _values[metric] = _values.get(metric, 0) + value


def measure(metric: Metric, value: float) -> None:
    """Sets what was measured last. Nothing is written before `flush`."""
    with _lock:
        _values[metric] = value


def flush() -> None:
    """Writes all that was counted since the last time as one embedded-metrics line; nothing when there is nothing.

    To be called at the end of each Lambda invocation, and each minute in a process.
    """
    with _lock:
        values = dict(_values)
        _values.clear()
    if not values:
        return
    # A fresh one: Powertools' own `Metrics` shares its state with every other in the process.
    metrics = EphemeralMetrics(service=SERVICE, namespace=NAMESPACE)
    for metric, value in values.items():
        metrics.add_metric(name=metric.value, unit=metric.unit, value=value)
    metrics.flush_metrics()
