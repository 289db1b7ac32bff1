"""From what runs took to what they cost, and what the same would cost elsewhere: the formula in one place.

Everything is per run. What a deployment costs while nothing happens (polls of queues, series of metrics, alarms, the
dashboard) is no run's; docs/costs.md has it. Outputs are empty, user code and the client's own polls aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from loadtest.aws_meter import WRITES
from loadtest.invoking import Counted
from loadtest.prices import PRICES, Part
from loadtest.shapes import EXPRESS_SECONDS, Shape

MILLION: Final = 1_000_000
GB: Final = 1e9

MEMORY_GB: Final = 1.0
"""Of the api, worker and fan-out functions (`infra`)."""
PROCESSOR_MB: Final = 1_769.0
"""Memory at which a function has one processor (Lambda developer guide, memory)."""
AUTHORIZER_GB: Final = 0.5
AUTHORIZER_SECONDS: Final = 0.015
"""One strong read and a hash. Assumed, as the latencies below are."""
TOKEN_READ_UNITS: Final = 1
TOKEN_CALLS: Final = 10_000
"""Requests that share one look at a busy token: API Gateway remembers the answer for five minutes."""

LATENCY_SECONDS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("PutItem", "UpdateItem", "GetItem"), 0.005),
    **dict.fromkeys(("Query", "SendMessage"), 0.010),
    **dict.fromkeys(("PutObject", "GetObject", "StartExecution", "DescribeExecution"), 0.030),
    "ChangeMessageVisibilityBatch": 0.010,
}
"""How long a function waits for an answer of AWS: assumed, a little over what AWS tells of medians in one region."""
CALL_PROCESSOR_SECONDS: Final = 0.001
"""What boto3 itself takes of the processor for a call, on memory nothing is called (measured: about 1 ms)."""
MAPPINGS_CALLS: Final = frozenset({"ReceiveMessage", "DeleteMessageBatch"})
"""Made by Lambda's poller, not by a function. They are billed all the same."""

_REQUEST: Final = "79b4f56e-95b1-4643-9700-2807f4e68189"
PLATFORM_LOG_BYTES: Final = len(
    f"START RequestId: {_REQUEST} Version: $LATEST\n"
    f"END RequestId: {_REQUEST}\n"
    f"REPORT RequestId: {_REQUEST}\tDuration: 189.83 ms\tBilled Duration: 190 ms\t"
    "Memory Size: 1024 MB\tMax Memory Used: 155 MB\t\n"
)
"""Lambda's own lines about an invocation in a sandbox that is warm (Lambda developer guide, Python logging)."""
ACCESS_LOG_BYTES: Final = 290
"""API Gateway's line of a submit, as `infra` asks for it, from an IPv6 address; 26 less from an IPv4 one."""
ITEM_OVERHEAD_BYTES: Final = 100
"""What DynamoDB adds to an item, and to its row in an index, when it bills storage."""
INDEX_ROW_BYTES: Final = 150 + ITEM_OVERHEAD_BYTES
RETENTION_MONTHS: Final = 1.0
"""An ended run's row lives for 30 days as shipped."""

EXPRESS_GB: Final = 64 / 1024
"""The least memory an Express execution is billed for."""

Usage = Mapping[Part, float]


def usage(counted: Counted, *, boto3_counted: bool) -> dict[Part, float]:
    """What one run used of each thing that is paid for.

    `boto3_counted` says whether the processor time has the calls' own in it. All of a run's calls are taken to be
    waited for one after the other, those of a batch at the same time: runs that share an invocation share its time.
    """
    runs, meter = counted.runs, counted.meter
    made = {name: count / runs for name, count in meter.calls.items()}
    own = {name: count for name, count in made.items() if name not in MAPPINGS_CALLS}
    waited = sum(count * LATENCY_SECONDS[name] for name, count in own.items())
    submit = sum(LATENCY_SECONDS[name] for name in ("GetItem", "SendMessage", "PutItem"))
    working = max(0.0, waited - submit) / counted.at_once
    processor = sum(counted.processor_seconds.values()) / runs
    if not boto3_counted:
        processor += sum(own.values()) * CALL_PROCESSOR_SECONDS
    # Part of a processor takes longer for the same.
    computing = processor * PROCESSOR_MB / (1_024 * MEMORY_GB)
    busy = counted.at_once > 1
    looks = 1 / TOKEN_CALLS if busy else 1.0
    invocations = sum(counted.invocations.values()) / runs
    log_bytes = counted.log_bytes / runs + (invocations + looks) * PLATFORM_LOG_BYTES + ACCESS_LOG_BYTES
    stored = counted.stored_bytes / runs + ITEM_OVERHEAD_BYTES + INDEX_ROW_BYTES
    batches = counted.invocations.get("fanout", 0) / runs
    return {
        Part.API: 1.0,
        Part.INVOCATIONS: invocations + looks,
        Part.COMPUTE: (submit + working + computing) * MEMORY_GB + looks * AUTHORIZER_SECONDS * AUTHORIZER_GB,
        Part.WRITES: sum(meter.write_units.values()) / runs,
        Part.INDEX_WRITES: sum(meter.index_units.values()) / runs,
        Part.READS: sum(meter.read_units.values()) / runs + looks * TOKEN_READ_UNITS,
        Part.TABLE_STORAGE: stored / GB * RETENTION_MONTHS,
        Part.QUEUE: meter.queue_requests / runs,
        Part.FAIRNESS: meter.sent / runs,
        Part.LOGS: log_bytes / GB,
        Part.BUCKET_WRITES: made.get("PutObject", 0.0),
        Part.BUCKET_READS: made.get("GetObject", 0.0) + (1.0 if batches else 0.0),  # the state machine reads the list
        # The Standard execution: the map, the ring, and a transition to start each batch, which is an Express one.
        Part.TRANSITIONS: batches + 2 if batches else 0.0,
        Part.EXPRESS: batches,
        Part.EXPRESS_COMPUTE: batches * EXPRESS_GB * 0.1,
    }


def standard(shape: Shape) -> Usage | None:
    """The same as a state machine of Step Functions Standard behind the same API; None where no execution can."""
    if not shape.standard:
        return None
    return {Part.API: 1.0, Part.TRANSITIONS: float(shape.states), Part.INVOCATIONS: float(shape.tasks)}


def express(shape: Shape) -> Usage | None:
    """The same as an Express execution: at least once, five minutes at most; None where that is not enough."""
    if shape.express_seconds > EXPRESS_SECONDS:
        return None
    return {
        Part.API: 1.0,
        Part.EXPRESS: 1.0,
        Part.EXPRESS_COMPUTE: EXPRESS_GB * shape.express_seconds,
        Part.INVOCATIONS: float(shape.tasks),
    }


def durable(shape: Shape) -> tuple[Usage, Usage]:
    """The same as a Lambda durable function: at least and at most; its steps are code in one function."""
    least, most = shape.operations

    def of(operations: int) -> Usage:
        return {
            Part.API: 1.0,
            Part.OPERATIONS: float(operations),
            Part.INVOCATIONS: 1.0,
            Part.DURABLE_WRITTEN: operations * 1_000 / GB,
        }

    return of(least), of(most)


def dollars(used: Usage) -> dict[Part, float]:
    """USD per million runs, by part; nothing where nothing is used."""
    return {part: amount * PRICES[part].dollars * MILLION for part, amount in used.items() if amount}


def total(used: Usage) -> float:
    """USD per million runs."""
    return sum(dollars(used).values())


def writes(counted: Counted) -> float:
    """Writes of records per run: calls, without those of the slots counter."""
    return sum(count for name, count in counted.meter.calls.items() if name in WRITES - {"UpdateItem"}) / counted.runs
