"""A run of ten thousand steps reads back whole, by way of the bucket; a page of its events reads that page only."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from fanfold import AsyncClient
from fanfold.adapters.aws.calls import Client
from fanfold.adapters.aws.run_items import to_item
from fanfold.adapters.aws.run_store import DynamoRunStore
from fanfold.adapters.aws.segments import to_segment_item
from fanfold.adapters.memory import MemoryBlobs
from fanfold.engine.payload import BlobRef
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import Run, Sealed, Status, StepState, StepStatus
from fanfold.engine.record.segments import Segment, segment_name
from tests.support.builders import a_run, key_of
from tests.support.clock import START
from tests.support.http import Http, memory_services

STEPS = 10_000
EACH = 20
"""Steps in a segment, as a chain of small ones is sealed."""

SEGMENTS = STEPS // EACH
BUCKET = "https://bucket.test/"


def a_step(number: int) -> str:
    return f"s{number:05d}"


def long_record() -> tuple[Run, list[Segment]]:
    """A finished run, all of whose steps and all but the last of whose entries are sealed away."""
    segments: list[Segment] = []
    submission = a_run().submission
    for number in range(SEGMENTS):
        entries, steps = [], {}
        for step in range(number * EACH, (number + 1) * EACH):
            at = START + timedelta(milliseconds=step)
            for seq, kind in ((2 * step + 1, EventType.STEP_STARTED), (2 * step + 2, EventType.STEP_SUCCEEDED)):
                entries.append(Entry(seq=seq, at=at, type=kind, step=a_step(step), attempt=1))
            steps[a_step(step)] = StepState(
                status=StepStatus.SUCCEEDED, attempts=1, started_at=at, finished_at=at, output={"text": "x" * 400}
            )
        name = segment_name(submission, entries[0].seq, f"w{number:015d}", 0)
        previous = segments[-1].name if segments else None
        segments.append(Segment(name=name, previous=previous, entries=tuple(entries), steps=steps))
    run = a_run(
        status=Status.SUCCEEDED,
        version=3,
        steps={},
        finished_at=START + timedelta(minutes=1),
        sealed=Sealed(newest=segments[-1].name, last_seq=2 * STEPS, statuses="s" * STEPS),
        journal=(Entry(seq=2 * STEPS + 1, at=START + timedelta(minutes=1), type=EventType.RUN_SUCCEEDED),),
    )
    return run, segments


RUN, RECORD = long_record()


class Table:
    """One run's items as DynamoDB answers for them; counts calls and the items they gave."""

    def __init__(self) -> None:
        items = [to_segment_item(key_of(RUN), segment, written_at=START) for segment in RECORD]
        self.items = [to_item(RUN), *items]
        self.keys = [item["sk"]["S"] for item in self.items]
        self.calls: Counter[str] = Counter()

    async def __call__(self, client: Client, operation: str, /, **given: Any) -> Any:
        self.calls[operation] += 1
        if operation == "get_item":
            return {"Item": self.items[0]}
        assert operation == "query", operation
        assert given["ConsistentRead"]
        values = given["ExpressionAttributeValues"]
        found = self.items[bisect_left(self.keys, values[":a"]["S"]) : bisect_right(self.keys, values[":z"]["S"])]
        if not given.get("ScanIndexForward", True):
            found = found[::-1]
        if "ExclusiveStartKey" in given:
            found = found[1 + [item["sk"] for item in found].index(given["ExclusiveStartKey"]["sk"]) :]
        limit = given.get("Limit", len(found))
        more = {} if limit >= len(found) else {"LastEvaluatedKey": {k: found[limit - 1][k] for k in ("pk", "sk")}}
        self.calls["items"] += len(found[:limit])
        return {"Items": found[:limit], **more}


class Bucket(MemoryBlobs):
    """Its addresses are ones an HTTP client follows."""

    async def presign(self, ref: BlobRef, *, seconds: int) -> str:
        return f"{BUCKET}{ref.key}"


def an_api() -> tuple[Http, Table, Bucket]:
    table, bucket = Table(), Bucket()
    services = memory_services(runs=DynamoRunStore(table, "table"), blobs=bucket)
    services.clock.set_now(START + timedelta(minutes=2))  # type: ignore[attr-defined]  # a test's clock
    return Http(services=services), table, bucket


def client_of(http: Http, bucket: Bucket) -> tuple[AsyncClient, list[httpx.Request]]:
    """The typed client on this API and bucket, and the requests it makes."""
    requests: list[httpx.Request] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if str(request.url).startswith(BUCKET):
            return httpx.Response(200, content=bucket._objects[str(request.url).removeprefix(BUCKET)])
        reply = await http(request.method, request.url.raw_path.decode(), headers=dict(request.headers))
        return httpx.Response(reply.status, headers=reply.headers, text=reply.text)

    return AsyncClient("http://service.test", "ff_token", transport=httpx.MockTransport(answer)), requests


async def test_it_reads_back_whole_through_get_by_way_of_the_bucket() -> None:
    http, table, bucket = an_api()
    reply = await http("GET", f"/v1/runs/{RUN.id}")
    assert (reply.status, reply.text) == (303, "")
    assert table.calls == {"get_item": 1, "query": 1, "items": SEGMENTS}
    body = bucket._objects[reply.headers["location"].removeprefix(BUCKET)]
    assert len(body) > 5_000_000
    steps = json.loads(body)["steps"]
    assert list(steps) == [a_step(number) for number in range(STEPS)]
    assert {step["output"]["text"] for step in steps.values()} == {"x" * 400}


async def test_it_reads_back_whole_through_the_client_which_shows_the_bucket_no_token() -> None:
    http, _, bucket = an_api()
    client, requests = client_of(http, bucket)
    async with client:
        run = await client.get(RUN.id)
    assert (run["status"], len(run["steps"])) == ("succeeded", STEPS)
    assert [request.url.host for request in requests] == ["service.test", "bucket.test"]
    assert "authorization" not in requests[1].headers


async def test_its_events_read_back_whole_through_the_client() -> None:
    http, table, bucket = an_api()
    client, requests = client_of(http, bucket)
    async with client:
        seqs = [event["seq"] async for event in client.events(RUN.id)]
    assert seqs == list(range(1, 2 * STEPS + 2))
    assert table.calls["query"] <= 2 * len(requests)
    assert table.calls["items"] <= 4 * SEGMENTS


@pytest.mark.parametrize("limit", [1, 50, 200])
async def test_a_page_of_events_costs_the_same_wherever_it_is(limit: int) -> None:
    http, table, _ = an_api()
    for after in (0, 1, 40, 9_999, 10_000, 2 * STEPS - limit, 2 * STEPS - 1):
        table.calls.clear()
        page = (await http("GET", f"/v1/runs/{RUN.id}/events?after={after}&limit={limit}")).json
        expected = list(range(after + 1, min(after + limit, 2 * STEPS + 1) + 1))
        assert [event["seq"] for event in page["events"]] == expected
        assert table.calls["get_item"] == 1
        assert table.calls["query"] <= 2
        assert table.calls["items"] <= 1 + limit // EACH + 4
    table.calls.clear()
    await http("GET", f"/v1/runs/{RUN.id}/events?after={2 * STEPS}&limit={limit}")
    assert table.calls == {"get_item": 1}


async def test_a_page_across_the_seam_has_both_sealed_and_live_events() -> None:
    http, _, _ = an_api()
    page = (await http("GET", f"/v1/runs/{RUN.id}/events?after={2 * STEPS - 2}&limit=200")).json
    assert [event["type"] for event in page["events"]] == ["step.started", "step.succeeded", "run.succeeded"]
    assert page["end"] is True
    assert replace(RUN, journal=()).last_seq == 2 * STEPS
