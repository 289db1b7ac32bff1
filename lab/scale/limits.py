"""AWS's limits and latencies as AWS documents them, each with where it says so. Checked in November 2026.

Seconds, and write units (a write of up to 1 KB) per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PARTITION_WRITES: Final = 1_000.0
"""Write units a second that one partition key takes (DynamoDB developer guide, "Best practices for designing and using
partition keys effectively"; the same holds for an index). What splitting for heat may add is not counted on: the items
that matter here are one counter each, or rows whose sort key only grows."""

NEW_TABLE_WRITES: Final = 4_000.0
"""Write units a second that a new on-demand table, and each new index, takes at once (DynamoDB developer guide,
"Understanding DynamoDB warm throughput in different scenarios"). It grows with use, and can be set (`WarmThroughput`).
"""

BURST_SECONDS: Final = 1.0
"""How much of a limit per second may be used at one moment. DynamoDB promises no more for a partition at its maximum
(developer guide, "Burst and adaptive capacity"): assumed."""

MAPPING_START: Final = 5
"""Batches at once with which an event source mapping of a standard queue begins (Lambda developer guide, "Configuring
scaling behavior for SQS event source mappings")."""

MAPPING_GROWTH_A_MINUTE: Final = 300
"""How many more a minute, at most, while messages are left (the same page)."""

MAPPING_MOST: Final = 1_250
"""Batches at once of one mapping, at most (the same page; MaximumConcurrency ends at 1,000)."""

FUNCTION_GROWTH: Final = 1_000
FUNCTION_GROWTH_SECONDS: Final = 10.0
"""So many more sandboxes each so many seconds, per function, refilled continuously (Lambda developer guide, "Lambda
scaling behavior")."""

ACCOUNT_CONCURRENCY: Final = 1_000
"""Concurrent executions of an account and region unless its quota was raised (Lambda quotas; a new account may have
as few as 10)."""

PROCESSOR_MB: Final = 1_769.0
"""Memory at which a function has one processor (Lambda developer guide, "Configure Lambda function memory")."""


class Operation(StrEnum):
    """What is asked of AWS; its value is the API's word for it."""

    PUT = "PutItem"
    UPDATE = "UpdateItem"
    GET = "GetItem"
    SEND = "SendMessage"
    RECEIVE = "ReceiveMessage"
    HIDE = "ChangeMessageVisibilityBatch"
    DELETE = "DeleteMessageBatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long an answer takes: a lognormal distribution by its median and its 99th percentile, in seconds."""

    median: float
    p99: float

    def seconds(self, normal: float) -> float:
        """The latency that belongs to a draw of the standard normal distribution."""
        return self.median * math.exp(math.log(self.p99 / self.median) / _Z99 * normal)


_Z99: Final = 2.326
"""The standard normal distribution's 99th percentile."""

TABLE_LATENCY: Final = Latency(median=0.005, p99=0.020)
"""DynamoDB: "single-digit millisecond" (developer guide, "What is Amazon DynamoDB"); the tail is assumed."""

QUEUE_LATENCY: Final = Latency(median=0.015, p99=0.100)
"""SQS: "tens or low hundreds of milliseconds" (SQS FAQs, on typical latencies); where in that range is assumed."""

LATENCIES: Final[Mapping[Operation, Latency]] = {
    **dict.fromkeys((Operation.PUT, Operation.UPDATE, Operation.GET), TABLE_LATENCY),
    **dict.fromkeys((Operation.SEND, Operation.RECEIVE, Operation.HIDE, Operation.DELETE), QUEUE_LATENCY),
}
