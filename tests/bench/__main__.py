"""What metrics cost an invocation: `python -m tests.bench` (or `make bench`).

Counts what each function counts of one invocation (the calls are those that `python -m loadtest cost` finds) and
flushes it, many times, on the processor's clock, and prints the median of the rounds, less that of the same calls
without any counting. Standard output is thrown away meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fanfold.adapters.aws.calls import Client
from fanfold.service.telemetry.aws_usage import COSTS, spend
from fanfold.service.telemetry.emf import lines
from fanfold.service.telemetry.metric_buffer import count, observe, taken
from fanfold.service.telemetry.metrics import Metric
from fanfold.service.telemetry.reporting import flush

ROUNDS = 25
TIMES = 200
CLASS = ("model",)
LANE = ("model", "normal")
CALLS = (Metric.TABLE_CALLS, Metric.QUEUE_CALLS)
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
    """The worker function carries a batch of ten; most of its messages are deleted by the mapping."""
    for _ in range(10):
        _one_of_a_batch()
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
    # What the API's calls cost is not told with each submit.
    for invocation, waits in ((submit, COSTS), (diamond, frozenset[Metric]()), (ten_diamonds, frozenset[Metric]())):
        taken()
        invocation()
        told = list(lines(taken(waits), service="fanfold-dev"))
        calls = int(sum(sum(values) for (metric, _), values in taken().items() if metric in CALLS))
        calls += sum(json.loads(line).get(metric, [0])[0] for line in told for metric in CALLS)
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            whole, bare = [], []
            for _ in range(ROUNDS):
                whole.append(_seconds(invocation, partial(flush, waits)))
                bare.append(_seconds(lambda: None, lambda: None, calls=calls))
        micros = (statistics.median(whole) - statistics.median(bare)) / TIMES * 1e6
        size = sum(len(line) + 1 for line in told)
        print(  # noqa: T201
            f"{invocation.__name__:14} {micros:6.0f} µs an invocation of {calls} calls, {len(told)} line, {size} bytes"
        )
    print(f"median of {ROUNDS} rounds of {TIMES}, Python {sys.version.split()[0]}")  # noqa: T201


def _seconds(invocation: Callable[[], None], end: Callable[[], None], *, calls: int = 0) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        invocation()
        for _ in range(calls):
            _answer(**PARAMETERS)
        end()
    return time.process_time() - began


if __name__ == "__main__":
    main()
