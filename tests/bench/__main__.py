"""What metrics cost an invocation: `python -m tests.bench` (or `make bench`).

Counts what each function counts of one invocation and flushes it, many times, on the processor's clock, and prints the
median of the rounds. Standard output is thrown away meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

from functions.runtime.embedded import lines
from functions.runtime.metrics import Metric
from functions.runtime.tally import count, observe, taken
from functions.runtime.telemetry import flush

ROUNDS = 25
TIMES = 200
CLASS = ("model",)
LANE = ("model", "normal")


def submit() -> None:
    """The api function accepts a run: two writes of the table, one message."""
    count(Metric.RUNS_ACCEPTED, of=CLASS)
    for _ in range(2):
        count(Metric.TABLE_CALLS)
        count(Metric.TABLE_WRITE_UNITS, 2)
    count(Metric.QUEUE_CALLS)


def diamond() -> None:
    """The worker function carries one diamond to its end."""
    count(Metric.RUNS_STARTED, of=CLASS)
    observe(Metric.QUEUE_WAIT, 12.345, of=LANE)
    for _ in range(4):
        count(Metric.STEPS, of=CLASS)
    for _ in range(6):
        count(Metric.TABLE_CALLS)
        count(Metric.TABLE_WRITE_UNITS, 1)
    for _ in range(2):
        count(Metric.QUEUE_CALLS)
    count(Metric.RUNS_SUCCEEDED, of=CLASS)
    observe(Metric.RUN_DURATION, 123.456, of=CLASS)
    observe(Metric.ENGINE_OVERHEAD, 23.456, of=CLASS)


def ten_diamonds() -> None:
    """The worker function carries a batch of ten."""
    for _ in range(10):
        diamond()


def main() -> None:
    """Measure each invocation and print it."""
    for invocation in (submit, diamond, ten_diamonds):
        taken()
        invocation()
        written = [json.dumps(line, separators=(",", ":")) for line in lines(taken(), service="fanfold-dev")]
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            micros = statistics.median(_seconds(invocation) for _ in range(ROUNDS)) / TIMES * 1e6
        size = sum(len(line) + 1 for line in written)
        print(f"{invocation.__name__:14} {micros:6.0f} µs an invocation, {len(written)} line, {size} bytes")  # noqa: T201
    print(f"median of {ROUNDS} rounds of {TIMES}, Python {sys.version.split()[0]}")  # noqa: T201


def _seconds(invocation: Callable[[], None]) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        invocation()
        flush()
    return time.process_time() - began


if __name__ == "__main__":
    main()
