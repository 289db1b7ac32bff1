"""A past for a stack on the emulator: ended runs written straight into its table."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from botocore.config import Config

from fanfold.adapters.aws.run_items import to_item
from fanfold.local.local_stack import LocalStack
from loadtest.access import endpoint_of, session_of
from loadtest.synthetic_history import SPACING, past_run

AT_ONCE = 25
"""Items of a `BatchWriteItem` (DynamoDB's limit)."""
THREADS = 4


def seed(stack: LocalStack, tenant: str, count: int, *, report: Callable[[str], None]) -> None:
    """Give a tenant so many ended runs, the newest a second old. Raises what boto3 does."""
    began = time.monotonic()
    table = session_of(stack).client(
        "dynamodb",
        endpoint_url=endpoint_of(stack),
        config=Config(max_pool_connections=THREADS, parameter_validation=False),
    )
    begin = datetime.now(UTC).replace(microsecond=0) - count * SPACING

    def write(first: int) -> None:
        numbers = range(first, min(first + AT_ONCE, count))
        items = [to_item(past_run(tenant, number, at=begin + number * SPACING)) for number in numbers]
        left: Any = {stack.table: [{"PutRequest": {"Item": item}} for item in items]}
        while left:
            left = table.batch_write_item(RequestItems=left).get("UnprocessedItems", {})

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(write, range(0, count, AT_ONCE)):
            pass  # an error in a thread is raised here
    report(f"{count:,} old runs written in {time.monotonic() - began:.1f} s")
