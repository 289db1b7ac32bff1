"""The memory adapter counts reads as DynamoDB does: the same pages cost the same calls and units in both."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from fanfold.adapters.aws.calls import Client
from fanfold.adapters.aws.run_items import size, to_item
from fanfold.adapters.aws.run_store import DynamoRunStore
from fanfold.engine.ports import Bucket, RunKey, RunStore
from fanfold.engine.record.run import Status
from fanfold.service.api.listing import Filters, page
from fanfold.service.aws_clients import Aws
from tests.contract.conftest import ReusedClients
from tests.support.aws import create_stack
from tests.support.builders import an_id
from tests.support.clock import START
from tests.support.history import TENANT, a_past_run, with_history

COUNT = 300
LIMITS = (1, 50)
FILTERS = (
    Filters(),
    Filters(statuses=frozenset({Status.FAILED})),
    Filters(statuses=frozenset({Status.RUNNING})),
    Filters(tags=(("parity", "1"),)),
)


class Billed:
    """A `Call` that bills each read by what the table really answered: the emulator's own figures know no sizes."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.calls: Counter[str] = Counter()
        self.units = 0.0

    async def __call__(self, client: Client, operation: str, /, **parameters: Any) -> Any:
        answer = await self._aws(client, operation, **parameters)
        match operation:
            case "query":
                factor = 1 if parameters.get("ConsistentRead") else 0.5
                self.units += factor * max(1, math.ceil(sum(map(size, answer["Items"])) / 4_096))
            case "get_item":
                self.units += max(1, math.ceil(size(answer.get("Item", {})) / 4_096))
            case "batch_get_item":
                ((table, asked),) = parameters["RequestItems"].items()
                items = answer["Responses"][table]
                assert asked["ConsistentRead"]
                self.units += sum(max(1, math.ceil(size(item) / 4_096)) for item in items)
                self.units += len(asked["Keys"]) - len(items)
        self.calls["".join(word.capitalize() for word in operation.split("_"))] += 1
        return answer


async def read_all(store: RunStore, filters: Filters, limit: int) -> list[str]:
    """The first pages of a listing, then three reads of runs; what was found."""
    found: list[str] = []
    cursor = None
    for _ in range(2):
        got = await page(store, TENANT, filters, limit=limit, cursor=cursor, now=START)
        found += [run.id for run, _ in got.runs]
        cursor = got.next_cursor
        if cursor is None:
            break
    for number in (0, COUNT // 2, COUNT):
        run = await store.get(RunKey(tenant=TENANT, run_id=an_id(number)), now=START)
        found.append(str(run and run.id))
    return found


async def write(aws: Aws, table: str, numbers: Iterable[int]) -> None:
    requests = [{"PutRequest": {"Item": to_item(a_past_run(number, COUNT))}} for number in numbers]
    for start in range(0, len(requests), 25):
        await aws(Client.DYNAMODB, "batch_write_item", RequestItems={table: requests[start : start + 25]})


@pytest.mark.emulator
async def test_pages_and_reads_cost_in_memory_what_they_cost_in_the_table(
    builder: ReusedClients, emulator_aws: Aws, emulator_url: str
) -> None:
    stack = create_stack(builder, emulator_url, name=f"units-{uuid.uuid4().hex[:12]}")
    await write(emulator_aws, stack.table, range(COUNT))
    for filters in FILTERS:
        for limit in LIMITS:
            billed = Billed(emulator_aws)
            memory, meter = with_history(COUNT)
            store = DynamoRunStore(billed, stack.table)
            await store.page(TENANT, Bucket.ACTIVE, limit=1)  # a process asks once how many shards there are
            billed.calls.clear()
            billed.units = 0
            found = await read_all(store, filters, limit)
            assert found == await read_all(memory, filters, limit)
            assert (billed.calls, billed.units) == (meter.calls, meter.units), (filters, limit)
