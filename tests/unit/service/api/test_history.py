"""What a page and a read cost does not depend on how much history there is."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.ports import IfAbsent
from fanfold.service.api import listing
from tests.support.builders import a_run, an_id
from tests.support.clock import START
from tests.support.history import with_history
from tests.support.http import Http, memory_services

COUNTS = (1_000, 20_000, 1_000_000)


class Cost:
    """What calls of the API read, one after the other."""

    def __init__(self, count: int) -> None:
        store, self._meter = with_history(count)
        self.http = Http(services=memory_services(runs=store))

    async def of(self, url: str) -> tuple[Any, Counter[str], float]:
        """An answer, the calls of DynamoDB it took, and its read units."""
        self._meter.calls.clear()
        self._meter.units = 0
        reply = await self.http("GET", url)
        assert reply.status == 200, reply.text
        return reply.json, Counter(self._meter.calls), self._meter.units


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("query", "calls", "units"),
    [
        # Four queries: half a unit for an empty bucket, one for 50 keys, which are 4 to 8 KB. Then the rows.
        ("", {"Query": 4, "BatchGetItem": 1}, 0.5 + 3 * 1 + 50),
        ("limit=1", {"Query": 4, "BatchGetItem": 1}, 4 * 0.5 + 1),
        ("limit=90", {"Query": 4, "BatchGetItem": 1}, 0.5 + 3 * 1 + 90),
        ("status=failed", {"Query": 1, "BatchGetItem": 1}, 1 + 50),
        ("status=queued,running", {"Query": 1}, 0.5),
        ("workflow=tiny", {"Query": 4, "BatchGetItem": 1}, 0.5 + 3 * 1 + 50),
        ("status=cancelled&tag=parity:1", {"Query": 1, "BatchGetItem": 1}, 1 + 50),
    ],
)
async def test_a_page_costs_the_same_however_long_the_history(
    query: str, calls: dict[str, int], units: float, count: int
) -> None:
    cost = Cost(count)
    page, made, read = await cost.of(f"/v1/runs?{query}")
    assert (made, read) == (calls, units)
    # And so does the one after it, and one from the middle of it all.
    if page["next_cursor"] is not None:
        for cursor in (page["next_cursor"], page["runs"][len(page["runs"]) // 2]["cursor"]):
            _, made, read = await cost.of(f"/v1/runs?{query}&cursor={cursor}")
            assert (made, read) == (calls, units)


@pytest.mark.parametrize("count", COUNTS)
async def test_a_read_of_a_run_costs_one_call_and_one_unit_however_long_the_history(count: int) -> None:
    cost = Cost(count)
    run, made, read = await cost.of(f"/v1/runs/{an_id(count // 2)}")
    assert (run["id"], made, read) == (an_id(count // 2), {"GetItem": 1}, 1)


async def test_a_filter_that_nothing_meets_gives_an_empty_page_of_bounded_cost_and_says_there_is_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "MAX_EXAMINED", 300)  # of 1,000, to be quick
    told = []
    for count in COUNTS[1:]:
        cost = Cost(count)
        page, made, read = await cost.of("/v1/runs?tag=nobody")
        assert (page["runs"], page["next_cursor"] is None) == ([], False)
        told.append((made, read))
        again, _, _ = await cost.of(f"/v1/runs?tag=nobody&cursor={page['next_cursor']}")
        assert again["next_cursor"] not in (None, page["next_cursor"])
    assert told[0] == told[1] == ({"Query": 8, "BatchGetItem": 6}, 387.0)


async def test_new_runs_and_a_million_old_ones_are_one_list_newest_first() -> None:
    cost = Cost(COUNTS[-1])
    for number in range(3):
        new = a_run(COUNTS[-1] + number, created_at=START + timedelta(seconds=number))
        await cost.http.services.runs.put(new, IfAbsent(), now=START)
    page, _, _ = await cost.of("/v1/runs?limit=5")
    newest = [an_id(COUNTS[-1] + number) for number in (2, 1, 0, -1, -2)]
    assert [run["id"] for run in page["runs"]] == newest
    deep = page
    for number in range(3):
        later = a_run(COUNTS[-1] + 10 + number, created_at=START + timedelta(minutes=1))
        await cost.http.services.runs.put(later, IfAbsent(), now=START)
        deep, _, _ = await cost.of(f"/v1/runs?limit=5&cursor={deep['next_cursor']}")
    assert [run["id"] for run in deep["runs"]] == [an_id(COUNTS[-1] - number) for number in range(13, 18)]
