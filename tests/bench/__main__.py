"""What metrics cost an invocation: `python -m tests.bench` (or `make bench`).

Counts what each function counts of one invocation (the calls are those that `python -m loadtest cost` finds) and
flushes it, many times, on the processor's clock, and prints the median of the rounds. Standard output is thrown away
meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from functions.adapters.aws import Client
from functions.runtime.embedded import lines
from functions.runtime.metrics import Metric
from functions.runtime.spending import spend
from functions.runtime.tally import count, observe, taken
from functions.runtime.telemetry import flush

ROUNDS = 25
TIMES = 200
CLASS = ("model",)
LANE = ("model", "normal")
PARAMETERS: dict[str, Any] = {}
ANSWER = {"ConsumedCapacity": {"CapacityUnits": 2.0}}


def written() -> None:
    """A write of the table, as the client of AWS counts it."""
    spend(Client.DYNAMODB_ONCE, "put_item", _answer, PARAMETERS)


def sent() -> None:
    """A call of a queue."""
    spend(Client.SQS_ONCE, "send_message_batch", _answer, PARAMETERS)


def submit() -> None:
    """The api function accepts a run: its place and its record, one message, one read of the workflow."""
    count(Metric.RUNS_ACCEPTED, of=CLASS)
    written()
    written()
    sent()
    spend(Client.DYNAMODB, "get_item", _answer, PARAMETERS)


def diamond() -> None:
    """The worker function carries one diamond to its end."""
    _one_of_a_batch()
    sent()


def ten_diamonds() -> None:
    """The worker function carries a batch of ten: three calls delete their messages as they end."""
    for _ in range(10):
        _one_of_a_batch()
    for _ in range(3):
        sent()


def _one_of_a_batch() -> None:
    """Four puts and a place given back, four steps."""
    count(Metric.RUNS_STARTED, of=CLASS)
    observe(Metric.QUEUE_WAIT, 12, of=LANE)
    for _ in range(4):
        count(Metric.STEPS, of=CLASS)
    for _ in range(5):
        written()
    count(Metric.RUNS_SUCCEEDED, of=CLASS)
    observe(Metric.RUN_DURATION, 123, of=CLASS)
    observe(Metric.ENGINE_OVERHEAD, 23, of=CLASS)


def _answer(**_: Any) -> Any:
    return ANSWER


def main() -> None:
    """Measure each invocation and print it."""
    for invocation in (submit, diamond, ten_diamonds):
        taken()
        invocation()
        told = list(lines(taken(), service="fanfold-dev"))
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            micros = statistics.median(_seconds(invocation) for _ in range(ROUNDS)) / TIMES * 1e6
        size = sum(len(line) + 1 for line in told)
        print(f"{invocation.__name__:14} {micros:6.0f} µs an invocation, {len(told)} line, {size} bytes")  # noqa: T201
    print(f"median of {ROUNDS} rounds of {TIMES}, Python {sys.version.split()[0]}")  # noqa: T201


def _seconds(invocation: Callable[[], None]) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        invocation()
        flush()
    return time.process_time() - began


if __name__ == "__main__":
    main()
