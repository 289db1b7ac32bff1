"""Submitting, reading and listing runs over HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanfold.engine.errors import Throttled
from fanfold.engine.ports import IfAbsent, IfVersion, Seat
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.messages import Envelope
from fanfold.engine.record.run import Failure, Reason, Run, Status, StepState, StepStatus
from fanfold.service.settings import Settings
from tests.support.builders import LANE, a_run
from tests.support.clock import START, FakeClock
from tests.support.http import PAIR, TINY, Http, memory_services, settings_with


@pytest.fixture
async def http() -> Http:
    return await an_api()


async def an_api(settings: Settings | None = None, version: str = "2.0") -> Http:
    http = Http(services=memory_services(settings), version=version)
    for document in (TINY, PAIR):
        assert (await http("PUT", f"/v1/workflows/{document['name']}", document)).status == 201
    return http


async def submitted(http: Http, **body: Any) -> str:
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", **body})
    assert reply.status == 202, reply.text
    run_id: str = reply.json["id"]
    return run_id


async def the_envelopes(http: Http) -> list[Envelope]:
    received = await http.services.queue.receive(LANE, limit=10, wait_seconds=0, visibility_seconds=30)
    return [item.message for item in received if isinstance(item.message, Envelope)]


async def stored(http: Http, run: Run) -> Run:
    await http.services.runs.put(run, IfAbsent(), now=http.services.clock.now())
    return run


async def end(http: Http, run_id: str, status: Status = Status.SUCCEEDED, **changed: Any) -> None:
    (run,) = [run for run in http.services.runs.rows.values() if run.id == run_id]  # type: ignore[attr-defined]  # in memory
    ended = replace(run, status=status, version=run.version + 1, finished_at=START, **changed)
    await http.services.runs.put(ended, IfVersion(version=run.version, submission=run.submission), now=START)


# --- submit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.0", "1.0"])
async def test_an_accepted_run_can_be_read_at_once(version: str) -> None:
    http = await an_api(version=version)
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", "input": {"n": 1}, "tags": {"team": "blue"}})
    assert reply.status == 202
    assert set(reply.json) == {"id", "status", "workflow", "version", "created_at", "links", "estimate"}
    assert reply.headers["location"] == reply.json["links"]["self"] == f"v1/runs/{reply.json['id']}"
    assert reply.json["links"]["events"] == f"v1/runs/{reply.json['id']}/events"
    assert reply.json["links"]["stream"].startswith("v1/stream/")
    run = (await http("GET", f"/v1/runs/{reply.json['id']}")).json
    assert run == {
        "id": reply.json["id"],
        "workflow": "tiny",
        "version": reply.json["version"],
        "status": "queued",
        "reason": None,
        "error": None,
        "class": "model",
        "lane": "normal",
        "tags": {"team": "blue"},
        "created_at": "2026-03-01T12:00:00.000Z",
        "started_at": None,
        "finished_at": None,
        "input": {"n": 1},
        "output": None,
        "epoch": 0,
        "steps": {
            "only": {
                "status": "pending",
                "attempts": 0,
                "started_at": None,
                "finished_at": None,
                "output": None,
                "error": None,
            }
        },
        "links": reply.json["links"],
    }


async def test_the_envelope_carries_the_whole_run(http: Http) -> None:
    run_id = await submitted(http, input=[1, 2.5, None])
    (envelope,) = await the_envelopes(http)
    assert (envelope.run_id, envelope.input, envelope.tenant) == (run_id, [1, 2.5, None], "acme")
    assert envelope.deadline == START + timedelta(hours=24)


async def test_a_delayed_run_stays_in_the_queue_for_so_long_and_its_timeouts_count_from_then(http: Http) -> None:
    await submitted(http, delay="90s")
    assert await the_envelopes(http) == []
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    await clock.advance(91)
    (envelope,) = await the_envelopes(http)
    assert envelope.deadline == START + timedelta(hours=24, seconds=90)


async def test_a_big_input_goes_to_the_bucket_and_is_shown_by_reference_or_inline(http: Http) -> None:
    run_id = await submitted(http, input={"text": "x" * 10_000})
    shown = (await http("GET", f"/v1/runs/{run_id}")).json["input"]
    assert set(shown) == {"$ref", "bytes", "sha256", "url"}
    assert shown["$ref"].startswith(f"acme/{run_id}/")
    assert shown["bytes"] > 10_000
    inline = (await http("GET", f"/v1/runs/{run_id}?inline=true")).json["input"]
    assert inline == {"text": "x" * 10_000}


async def test_a_repeated_key_with_the_same_body_is_the_same_run(http: Http) -> None:
    body = {"workflow": "tiny", "input": 1}
    first = await http("POST", "/v1/runs", body, headers={"Idempotency-Key": "k1"})
    second = await http("POST", "/v1/runs", body, headers={"Idempotency-Key": "k1"})
    assert (first.status, second.status) == (202, 200)
    assert second.json == {name: value for name, value in first.json.items() if name != "estimate"}
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert len(await the_envelopes(http)) == 1
    assert (await http("GET", "/v1/queues")).json["queues"][0]["queued"] == 1


async def test_a_repeated_key_with_the_same_json_in_another_form_is_the_same_run(http: Http) -> None:
    headers = {"Idempotency-Key": "k1"}
    forms = ('{"workflow": "tiny", "input": {"a": 1, "b": [2]}}', '{"input":{"b":[2],"a":1},\n "workflow":"tiny"}')
    replies = [await http("POST", "/v1/runs", form, headers=headers) for form in forms]
    assert [reply.status for reply in replies] == [202, 200]


async def test_a_repeated_key_of_a_batch_with_the_same_json_in_another_form_is_the_same_run(http: Http) -> None:
    headers = {"Idempotency-Key": "k1"}
    forms: tuple[dict[str, Any], ...] = ({"workflow": "tiny", "input": 1}, {"input": 1, "workflow": "tiny"})
    replies = [await http("POST", "/v1/runs/batch", {"runs": [form]}, headers=headers) for form in forms]
    assert [reply.json["results"][0]["status"] for reply in replies] == [202, 200]


@pytest.mark.parametrize("query", ["status=", "status=,", "workflow=", "tag=", "tag=a&tag="])
async def test_a_blank_filter_is_an_error_and_does_not_show_everything(http: Http, query: str) -> None:
    reply = await http("GET", f"/v1/runs?{query}")
    assert (reply.status, reply.json["type"]) == (400, "invalid-parameter")


async def test_a_repeated_key_with_another_body_is_refused(http: Http) -> None:
    await http("POST", "/v1/runs", {"workflow": "tiny", "input": 1}, headers={"Idempotency-Key": "k1"})
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", "input": 2}, headers={"Idempotency-Key": "k1"})
    assert (reply.status, reply.json["type"]) == (409, "key-reused")


async def test_a_key_of_one_tenant_says_nothing_to_another(http: Http) -> None:
    await http("PUT", "/v1/workflows/tiny", TINY, tenant="other")
    body = {"workflow": "tiny"}
    first = await http("POST", "/v1/runs", body, headers={"Idempotency-Key": "k1"})
    second = await http("POST", "/v1/runs", body, headers={"Idempotency-Key": "k1"}, tenant="other")
    assert (first.status, second.status) == (202, 202)
    assert first.json["id"] != second.json["id"]


@pytest.mark.parametrize("key", ["", " ", "a b", "ü", "x" * 256])
async def test_a_key_that_is_not_visible_ascii_is_refused(http: Http, key: str) -> None:
    reply = await http("POST", "/v1/runs", {"workflow": "tiny"}, headers={"Idempotency-Key": key})
    assert (reply.status, reply.json["type"]) == (422, "invalid-parameter")


async def test_a_full_queue_is_429_with_a_time_to_come_back() -> None:
    http = await an_api(settings_with(max_queue_depth=2))
    await submitted(http)
    await submitted(http)
    reply = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert (reply.status, reply.json["type"]) == (429, "queue-full")
    assert int(reply.headers["retry-after"]) >= 1
    assert len(await the_envelopes(http)) == 2


async def test_a_tenant_over_its_rate_is_429_and_another_is_not() -> None:
    http = await an_api(Settings(submits_per_minute=2))
    await submitted(http)
    await submitted(http)
    reply = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert (reply.status, reply.json["type"], reply.headers["retry-after"]) == (429, "throttled", "30")
    assert (await http("POST", "/v1/runs", {"workflow": "tiny"}, tenant="other")).status == 404
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    await clock.advance(31)
    await submitted(http)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"workflow": "tiny", "lane": "express"}, "/lane"),
        ({"workflow": "tiny", "inptu": {}}, "/inptu"),
        ({"workflow": "Tiny!"}, "/workflow"),
        ({"workflow": 7}, "/workflow"),
        ({}, "/workflow"),
        ({"workflow": "tiny", "delay": 901}, "/delay"),
        ({"workflow": "tiny", "delay": "16m"}, "/delay"),
        ({"workflow": "tiny", "delay": -1}, "/delay"),
        ({"workflow": "tiny", "delay": True}, "/delay"),
        ({"workflow": "tiny", "delay": 10**400}, "/delay"),
        ({"workflow": "tiny", "delay": "soon"}, "/delay"),
        ({"workflow": "tiny", "tags": {"a": 1}}, "/tags/a"),
        ({"workflow": "tiny", "tags": {f"t{n}": "" for n in range(21)}}, "/tags"),
        ([], ""),
        ("text", ""),
    ],
)
async def test_a_body_that_makes_no_sense_is_422_and_points_at_why(http: Http, body: Any, pointer: str) -> None:
    reply = await http("POST", "/v1/runs", json.dumps(body))
    assert reply.status == 422
    assert pointer in [error["pointer"] for error in reply.json["errors"]]
    assert await the_envelopes(http) == []


async def test_an_unknown_lane_is_told_which_lanes_there_are() -> None:
    http = await an_api(settings_with(lanes=("high", "normal")))
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", "lane": "low"})
    assert "high, normal" in reply.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "{",
        '{"workflow": "tiny",}',
        '{"workflow": "tiny", "workflow": "tiny"}',
        '{"workflow": "tiny", "input": NaN}',
        '{"workflow": "tiny", "input": 1e999}',
        '{"workflow": "tiny", "input": ' + "[" * 101 + "]" * 101 + "}",
        '{"workflow": "tiny", "input": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"workflow": "tiny", "input": ' + "9" * 5_000 + "}",
        "\ufeff{}",
    ],
)
async def test_a_body_that_is_no_json_is_400(http: Http, body: str | None) -> None:
    reply = await http("POST", "/v1/runs", body)
    assert (reply.status, reply.json["type"]) == (400, "malformed-json")


async def test_a_base64_body_is_read_and_a_broken_one_is_400(http: Http) -> None:
    assert (await http("POST", "/v1/runs", {"workflow": "tiny"}, encoded=True)).status == 202
    event = http.event("POST", "/v1/runs", "ÄÖ") | {"isBase64Encoded": True}
    assert (await http.app.answer(event, None))["statusCode"] == 400
    event = http.event("POST", "/v1/runs", "/w==") | {"isBase64Encoded": True}
    assert (await http.app.answer(event, None))["statusCode"] == 400


@pytest.mark.parametrize("encoded", [False, True])
async def test_a_body_over_the_limit_is_413_and_one_at_the_limit_is_not(encoded: bool) -> None:
    http = await an_api(Settings(max_body_bytes=1_000))
    frame = '{"workflow": "tiny", "input": ""}'
    at_the_limit = frame[:-2] + "x" * (1_000 - len(frame)) + frame[-2:]
    assert (await http("POST", "/v1/runs", at_the_limit, encoded=encoded)).status == 202
    reply = await http("POST", "/v1/runs", at_the_limit + " ", encoded=encoded)
    assert (reply.status, reply.json["type"]) == (413, "too-large")


async def test_an_unknown_workflow_or_version_is_404_and_takes_no_slot(http: Http) -> None:
    assert (await http("POST", "/v1/runs", {"workflow": "nope"})).status == 404
    assert (await http("POST", "/v1/runs", {"workflow": "tiny", "version": "sha256:0"})).status == 404
    assert (await http("GET", "/v1/queues")).json["queues"][0]["queued"] == 0


async def test_a_run_keeps_the_version_it_was_submitted_with(http: Http) -> None:
    run_id = await submitted(http)
    first = (await http("GET", f"/v1/runs/{run_id}")).json["version"]
    await http("PUT", "/v1/workflows/tiny", {**TINY, "timeout": "5m"})
    assert (await http("GET", f"/v1/runs/{run_id}")).json["version"] == first
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", "version": first})
    assert reply.json["version"] == first
    reply = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert reply.json["version"] != first


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
bodies = st.one_of(
    st.text(),
    json_values.map(json.dumps),
    st.fixed_dictionaries(
        {"workflow": st.just("tiny") | json_values},
        optional={
            "version": json_values,
            "input": json_values,
            "lane": st.just("normal") | json_values,
            "tags": st.dictionaries(st.text(max_size=8), json_values, max_size=3) | json_values,
            "delay": st.integers() | st.floats() | json_values,
        },
    ).map(json.dumps),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies, key=st.none() | st.text(max_size=10))
async def test_no_body_whatever_makes_the_service_fail(http: Http, body: str, key: str | None) -> None:
    headers = {} if key is None else {"Idempotency-Key": key}
    reply = await http("POST", "/v1/runs", body, headers=headers)
    assert reply.status in {200, 202, 400, 404, 409, 422, 429}


# --- read -------------------------------------------------------------------------------------


async def test_another_tenants_run_is_as_unknown_as_one_that_never_was(http: Http) -> None:
    run_id = await submitted(http)
    for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events"):
        assert (await http("GET", path, tenant="other")).status == 404
    assert (await http("GET", "/v1/runs/nope")).json["type"] == "not-found"


async def test_steps_can_be_narrowed(http: Http) -> None:
    run_id = await submitted(http, workflow="pair")
    assert list((await http("GET", f"/v1/runs/{run_id}")).json["steps"]) == ["first", "second"]
    assert list((await http("GET", f"/v1/runs/{run_id}?steps=second,other")).json["steps"]) == ["second"]
    assert (await http("GET", f"/v1/runs/{run_id}?steps=none")).json["steps"] == {}


async def test_a_run_that_has_begun_shows_the_steps_to_come_as_well_in_the_documents_order(http: Http) -> None:
    run_id = await submitted(http, workflow="pair")
    (run,) = [run for run in http.services.runs.rows.values() if run.id == run_id]  # type: ignore[attr-defined]  # in memory
    begun = replace(run, status=Status.RUNNING, version=2, steps={"second": StepState(status=StepStatus.RUNNING)})
    await http.services.runs.put(begun, IfVersion(version=1, submission=run.submission), now=START)
    steps = (await http("GET", f"/v1/runs/{run_id}")).json["steps"]
    assert [(name, step["status"]) for name, step in steps.items()] == [("first", "pending"), ("second", "running")]


async def test_a_wait_answers_as_soon_as_the_run_has_ended(http: Http) -> None:
    run_id = await submitted(http)
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    waiting = asyncio.create_task(http("GET", f"/v1/runs/{run_id}?wait=25"))
    await clock.advance(3)
    assert not waiting.done()
    await end(http, run_id, output={"done": True})
    await clock.advance(1)
    assert waiting.done()
    assert waiting.result().json["output"] == {"done": True}


async def test_a_wait_ends_after_its_time_with_the_run_as_it_is(http: Http) -> None:
    run_id = await submitted(http)
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    waiting = asyncio.create_task(http("GET", f"/v1/runs/{run_id}?wait=600"))
    await clock.advance(25.1)
    assert waiting.result().json["status"] == "queued"


async def test_beyond_the_most_waiters_a_wait_answers_at_once() -> None:
    http = await an_api(Settings(max_waiters=1))
    run_id = await submitted(http)
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    waiting = asyncio.create_task(http("GET", f"/v1/runs/{run_id}?wait=5"))
    await clock.advance(0.01)
    assert (await http("GET", f"/v1/runs/{run_id}?wait=5")).status == 200
    assert not waiting.done()
    await clock.advance(6)
    assert waiting.done()


async def test_beyond_the_most_that_wait_in_all_processes_a_wait_answers_at_once() -> None:
    """In Lambda a process has one call at a time, and a bound of its own bounds nothing."""
    http = await an_api(Settings(max_watchers=1))
    other = Http(services=replace(http.services))  # another process on the same services
    run_id = await submitted(http)
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    waiting = asyncio.create_task(http("GET", f"/v1/runs/{run_id}?wait=5"))
    await clock.advance(0.01)
    assert (await other("GET", f"/v1/runs/{run_id}?wait=5")).json["status"] == "queued"
    assert not waiting.done()
    await clock.advance(6)
    assert waiting.done()
    later = asyncio.create_task(other("GET", f"/v1/runs/{run_id}?wait=5"))
    await clock.advance(0.01)
    assert not later.done(), "the seat is free again"
    await clock.advance(6)
    assert later.done()


class OutOfReach:
    """Seats that nobody can ask for."""

    def __init__(self) -> None:
        self.asked = 0

    async def take(self, name: str, *, now: datetime, until: datetime) -> Seat | None:
        self.asked += 1
        raise Throttled("seats")

    async def leave(self, seat: Seat) -> None:
        raise AssertionError("nobody has one")


async def test_where_no_seat_can_be_taken_a_wait_answers_at_once_and_is_no_error() -> None:
    seats = OutOfReach()
    http = await an_api()
    http = Http(services=replace(http.services, seats=seats))
    run_id = await submitted(http)
    assert (await http("GET", f"/v1/runs/{run_id}?wait=5")).json["status"] == "queued"
    assert seats.asked == 1
    # What does not wait needs none.
    assert (await http("GET", f"/v1/runs/{run_id}")).status == 200
    await end(http, run_id, output={})
    assert (await http("GET", f"/v1/runs/{run_id}?wait=5")).json["status"] == "succeeded"
    assert seats.asked == 1


@pytest.mark.parametrize("query", ["wait=-1", "wait=soon", "inline=perhaps", "wait="])
async def test_a_query_that_makes_no_sense_is_422_and_names_the_parameter(http: Http, query: str) -> None:
    run_id = await submitted(http)
    reply = await http("GET", f"/v1/runs/{run_id}?{query}")
    assert (reply.status, reply.json["parameter"]) == (422, query.split("=")[0])


async def test_a_failed_step_shows_its_error(http: Http) -> None:
    fault = Failure(type="step_failed", message="only: boom")
    step = StepState(status=StepStatus.FAILED, attempts=2, failures=2, error=fault)
    run = await stored(http, a_run(status=Status.FAILED, reason=Reason.STEP_FAILED, error=fault, steps={"only": step}))
    shown = (await http("GET", f"/v1/runs/{run.id}")).json
    assert (shown["reason"], shown["error"]) == ("step_failed", {"type": "step_failed", "message": "only: boom"})
    assert shown["steps"]["only"]["error"]["message"] == "only: boom"


async def test_an_answer_over_5_mb_is_fetched_from_the_bucket(http: Http) -> None:
    blobs = http.services.blobs
    outputs = {f"s{n}": await blobs.put(f"acme/big/{n}", json.dumps("x" * 3_000_000).encode()) for n in (1, 2)}
    steps = {name: StepState(status=StepStatus.SUCCEEDED, output=ref) for name, ref in outputs.items()}
    run = await stored(http, a_run(steps=steps))
    assert (await http("GET", f"/v1/runs/{run.id}?inline=true&steps=s1")).status == 200
    reply = await http("GET", f"/v1/runs/{run.id}?inline=true")
    assert reply.status == 303
    assert f"acme/{run.id}/" in reply.headers["location"]


# --- events -----------------------------------------------------------------------------------


async def test_events_go_on_where_the_last_answer_ended(http: Http) -> None:
    journal = (
        Entry(seq=1, at=START, type=EventType.RUN_ACCEPTED),
        Entry(seq=2, at=START, type=EventType.RUN_CLAIMED, data={"epoch": 1}),
        Entry(seq=3, at=START, type=EventType.STEP_EMITTED, step="only", attempt=1, data={"data": {"percent": 5}}),
        Entry(seq=4, at=START, type=EventType.RUN_SUCCEEDED),
    )
    run = await stored(http, a_run(status=Status.SUCCEEDED, journal=journal))
    first = (await http("GET", f"/v1/runs/{run.id}/events?limit=3")).json
    assert first["events"][0] == {"seq": 1, "at": "2026-03-01T12:00:00.000Z", "type": "run.accepted"}
    assert first["events"][2] == {
        "seq": 3,
        "at": "2026-03-01T12:00:00.000Z",
        "type": "step.emitted",
        "step": "only",
        "attempt": 1,
        "data": {"percent": 5},
    }
    assert (first["last_seq"], first["end"]) == (3, False)
    second = (await http("GET", f"/v1/runs/{run.id}/events?after=3")).json
    assert ([e["seq"] for e in second["events"]], second["last_seq"], second["end"]) == ([4], 4, True)
    third = (await http("GET", f"/v1/runs/{run.id}/events?after=4&wait=25")).json
    assert third == {"events": [], "last_seq": 4, "end": True}


async def test_a_wait_for_events_answers_with_the_next_one(http: Http) -> None:
    run_id = await submitted(http)
    clock = http.services.clock
    assert isinstance(clock, FakeClock)
    waiting = asyncio.create_task(http("GET", f"/v1/runs/{run_id}/events?after=1&wait=10"))
    await clock.advance(1)
    assert not waiting.done()
    accepted = Entry(seq=1, at=START, type=EventType.RUN_ACCEPTED)
    cancelled = Entry(seq=2, at=START, type=EventType.RUN_CANCELLED)
    await end(http, run_id, Status.CANCELLED, journal=(accepted, cancelled))
    await clock.advance(2)
    assert [e["type"] for e in waiting.result().json["events"]] == ["run.cancelled"]
    assert waiting.result().json["end"] is True


# --- list -------------------------------------------------------------------------------------


async def many(http: Http, count: int) -> list[str]:
    """Runs in every bucket, each a second younger than the one before; returns their ids, newest first."""
    statuses = (Status.QUEUED, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.RUNNING)
    for number in range(count):
        await stored(
            http,
            a_run(
                number,
                status=statuses[number % 5],
                created_at=START + timedelta(seconds=number // 2),
                tags={"parity": str(number % 2), "ten": "yes"} if number % 10 == 0 else {"parity": str(number % 2)},
            ),
        )
    rows = http.services.runs.rows.values()  # type: ignore[attr-defined]  # in memory
    return [run.id for run in sorted(rows, key=lambda run: (run.created_at, run.id), reverse=True)]


async def pages(http: Http, query: str) -> list[list[Any]]:
    found, cursor = [], ""
    while True:
        reply = await http("GET", f"/v1/runs?{query}{cursor}")
        assert reply.status == 200, reply.text
        found.append(reply.json["runs"])
        if reply.json["next_cursor"] is None:
            return found
        cursor = f"&cursor={reply.json['next_cursor']}"


@pytest.mark.parametrize("limit", [1, 3, 7, 200])
async def test_pages_hold_every_run_once_newest_first(http: Http, limit: int) -> None:
    ids = await many(http, 23)
    assert [run["id"] for page in await pages(http, f"limit={limit}") for run in page] == ids


async def test_every_listed_run_has_a_cursor_that_goes_on_after_it(http: Http) -> None:
    ids = await many(http, 12)
    listed = (await http("GET", "/v1/runs")).json["runs"]
    reply = await http("GET", f"/v1/runs?cursor={listed[4]['cursor']}")
    assert [run["id"] for run in reply.json["runs"]] == ids[5:]


async def test_a_page_is_stable_while_new_runs_arrive(http: Http) -> None:
    ids = await many(http, 9)
    first = (await http("GET", "/v1/runs?limit=4")).json
    await stored(http, a_run(99, created_at=START + timedelta(hours=1)))
    second = (await http("GET", f"/v1/runs?limit=4&cursor={first['next_cursor']}")).json
    assert [run["id"] for run in first["runs"] + second["runs"]] == ids[:8]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status=failed", lambda n: n % 5 == 2),
        ("status=queued,cancelled", lambda n: n % 5 in (0, 3)),
        ("status=queued&status=cancelled", lambda n: n % 5 in (0, 3)),
        ("tag=parity:1", lambda n: n % 2 == 1),
        ("tag=parity%3D1", lambda n: n % 2 == 1),
        ("tag=ten", lambda n: n % 10 == 0),
        ("tag=ten&tag=parity:1", lambda n: False),
        ("workflow=other", lambda n: False),
        ("workflow=tiny&status=running", lambda n: n % 5 == 4),
    ],
)
async def test_filters_show_what_the_row_says(http: Http, query: str, expected: Any) -> None:
    await many(http, 30)
    shown = {run["id"] for page in await pages(http, f"limit=4&{query}") for run in page}
    assert shown == {a_run(n).id for n in range(30) if expected(n)}


@pytest.mark.parametrize("version", ["2.0", "1.0"])
async def test_repeated_parameters_arrive_in_both_payload_formats(version: str) -> None:
    http = await an_api(version=version)
    await many(http, 10)
    shown = [run["status"] for page in await pages(http, "status=failed&status=running") for run in page]
    assert sorted(shown) == ["failed", "failed", "running", "running"]


async def test_a_broken_or_foreign_cursor_is_400(http: Http) -> None:
    await many(http, 5)
    good = (await http("GET", "/v1/runs?limit=2")).json["next_cursor"]
    assert (await http("GET", f"/v1/runs?cursor={good}")).status == 200
    for query in (f"cursor={good[:-1]}", f"cursor=A{good}", "cursor=", "cursor=ü", f"status=failed&cursor={good}"):
        reply = await http("GET", f"/v1/runs?{query}")
        assert (reply.status, reply.json["type"]) == (400, "invalid-cursor")
    assert (await http("GET", f"/v1/runs?cursor={good}", tenant="other")).status == 400


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "status=done"])
async def test_a_limit_or_status_there_is_none_of_is_422(http: Http, query: str) -> None:
    assert (await http("GET", f"/v1/runs?{query}")).status == 422


async def test_a_list_shows_only_ones_own_runs(http: Http) -> None:
    await submitted(http)
    assert (await http("GET", "/v1/runs", tenant="other")).json == {"runs": [], "next_cursor": None}
