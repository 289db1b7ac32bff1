"""Batches, wherever one of their runs breaks off: what is left behind, what is told, and that no other run notices."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fanfold.engine.errors import (
    InfrastructureError,
    KeyReused,
    LimitExceeded,
    NotFound,
    QueueFull,
    Throttled,
    Unanswered,
    Unavailable,
)
from fanfold.engine.language.workflow import version_of
from fanfold.engine.ports import FirstClaim, NotSent, Outgoing, Registered
from fanfold.engine.record.messages import Envelope, QueueName, first_version
from fanfold.engine.record.run import Status
from fanfold.service.api.batch_submit import Outcome, submit_many
from fanfold.service.api.handlers.context import context_of
from fanfold.service.api.submit import Submission, Submitted
from fanfold.service.settings import Settings
from tests.support.builders import LANE
from tests.support.clock import START, FakeClock
from tests.support.http import TINY, Http, Reply, memory_services, settings_with
from tests.unit.service.api.test_submit import PORTS, Bench, Watched, digest


class Choosy:
    """A queue that fails single messages of a batch as told, by the number in their input."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.refused: dict[int, NotSent] = {}
        self.unanswered: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        outcomes: list[NotSent | None] = []
        for outgoing in messages:
            assert isinstance(outgoing.message, Envelope)
            number = outgoing.message.input
            if number not in self.refused:
                await self._queue.send(queue, outgoing.message, delay_seconds=outgoing.delay_seconds)
            outcomes.append(Unanswered("?") if number in self.unanswered else self.refused.get(number))
        return outcomes


class Batch(Bench):
    """A bench whose queue can fail single messages."""

    def __init__(self, services: Any) -> None:
        super().__init__(services)
        self.choosy = Choosy(services.queue)
        self.ports["queue"] = Watched(self.choosy, "queue", self.calls)
        self.desk = context_of(replace(services, **{name: self.ports[name] for name in PORTS}))

    async def submit_all(self, count: int = 5, *, key: str | None = None, **given: Any) -> Sequence[Outcome]:
        """`count` submissions whose inputs are their numbers."""
        asked = []
        for number in range(count):
            values: dict[str, Any] = {"tenant": "acme", "workflow": "tiny", "input": number, **given}
            values = {"request_hash": digest(str(number)), **values}
            asked.append(Submission(key=None if key is None else f"{key}/{number}", **values))
        return await self.send_in(asked)

    async def send_in(self, asked: Sequence[Submission]) -> Sequence[Outcome]:
        task = asyncio.create_task(submit_many(self.desk.submitter, asked))
        clock = self.memory.clock
        assert isinstance(clock, FakeClock)
        for _ in range(200):
            if task.done():
                break
            await clock.advance(0.25)
        return await task

    async def sent(self) -> list[int]:
        """The numbers of the runs whose envelopes are out."""
        envelopes: list[Envelope] = []
        while more := await self.memory.queue.receive(LANE, limit=10, wait_seconds=0, visibility_seconds=30):
            envelopes += [item.message for item in more if isinstance(item.message, Envelope)]
        return sorted(envelope.input for envelope in envelopes)

    def stored(self) -> list[int]:
        """The numbers of the runs that have rows."""
        return sorted(run.input for run in self.rows())


@pytest.fixture
async def batch() -> Batch:
    services = memory_services()
    registered = Registered(name="tiny", version=version_of(TINY), document=TINY, created_at=START)
    await services.catalog.register("acme", registered)
    return Batch(services)


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    """What became of each: `new`, `replay`, or the error's name."""
    return [
        ("replay" if outcome.replayed else "new") if isinstance(outcome, Submitted) else type(outcome).__name__
        for outcome in outcomes
    ]


async def test_a_hundred_runs_cost_one_read_one_send_of_all_and_a_slot_and_a_row_each(batch: Batch) -> None:
    outcomes = await batch.submit_all(100)
    assert kinds(outcomes) == ["new"] * 100
    assert [outcome.run.input for outcome in outcomes if isinstance(outcome, Submitted)] == list(range(100))
    expected = {"catalog.current": 1, "slots.reserve": 100, "queue.send_many": 1, "runs.put": 100}
    assert Counter(batch.calls) == expected
    assert await batch.sent() == batch.stored() == list(range(100))


async def test_a_repeated_keyed_batch_costs_one_read_for_all_and_no_slot(batch: Batch) -> None:
    first = await batch.submit_all(key="k")
    batch.calls.clear()
    again = await batch.submit_all(key="k")
    assert kinds(again) == ["replay"] * 5
    assert [o.run.id for o in first if isinstance(o, Submitted)] == [
        o.run.id for o in again if isinstance(o, Submitted)
    ]
    assert batch.calls == ["runs.get_many"]


async def test_the_keys_of_a_batch_are_its_key_and_the_runs_numbers(batch: Batch) -> None:
    outcomes = await batch.submit_all(key="k")
    third = outcomes[3]
    assert isinstance(third, Submitted)
    alone = await batch.submit(key="k/3", body="3", input=3)
    assert (alone.replayed, alone.run.id) == (True, third.run.id)


async def test_a_changed_run_of_a_repeated_batch_is_refused_and_the_rest_is_replayed(batch: Batch) -> None:
    await batch.submit_all(2, key="k")
    await batch.submit(key="k/2", body="another")
    outcomes = await batch.submit_all(4, key="k")
    assert kinds(outcomes) == ["replay", "replay", "KeyReused", "new"]


async def test_when_replays_can_not_be_looked_for_nothing_is_done(batch: Batch) -> None:
    batch.ports["runs"].before["get_many"] = [Throttled("no")]
    with pytest.raises(Throttled):
        await batch.submit_all(key="k")
    assert (await batch.slots_taken(), await batch.sent(), batch.stored()) == (0, [], [])


@pytest.mark.parametrize("error", [Throttled("no"), Unanswered("?")])
async def test_a_reservation_that_fails_is_that_runs_alone(batch: Batch, error: InfrastructureError) -> None:
    batch.ports["slots"].before["reserve"] = [None, error]
    assert kinds(await batch.submit_all()) == ["new", type(error).__name__, "new", "new", "new"]
    assert await batch.sent() == batch.stored() == [0, 2, 3, 4]


async def test_of_a_batch_that_does_not_fit_as_many_are_accepted_as_there_is_room_for() -> None:
    services = memory_services(settings_with(max_queue_depth=3))
    registered = Registered(name="tiny", version=version_of(TINY), document=TINY, created_at=START)
    await services.catalog.register("acme", registered)
    batch = Batch(services)
    outcomes = await batch.submit_all()
    assert Counter(kinds(outcomes)) == {"new": 3, QueueFull.__name__: 2}
    assert (await batch.slots_taken(), len(await batch.sent()), len(batch.stored())) == (3, 3, 3)


@pytest.mark.parametrize("error", [Throttled("no"), Unavailable("no"), LimitExceeded("sqs.message_bytes", "no")])
async def test_a_message_refused_for_sure_returns_its_slot(batch: Batch, error: NotSent) -> None:
    batch.choosy.refused = {2: error}
    assert kinds(await batch.submit_all()) == ["new", "new", type(error).__name__, "new", "new"]
    assert (await batch.slots_taken(), batch.stored()) == (4, [0, 1, 3, 4])


async def test_a_message_without_an_answer_keeps_its_slot_and_the_repeat_finds_or_makes_the_run(batch: Batch) -> None:
    batch.choosy.unanswered = {1, 3}
    assert kinds(await batch.submit_all(key="k")) == ["new", "Unanswered", "new", "Unanswered", "new"]
    assert (await batch.slots_taken(), batch.stored()) == (5, [0, 2, 4])
    envelopes = {e.input: e for e in await batch.envelopes()}
    assert sorted(envelopes) == [0, 1, 2, 3, 4]
    # One of the two is claimed by a worker before the client comes again.
    run = replace(first_version(envelopes[1]), status=Status.RUNNING, version=2, epoch=1)
    await batch.memory.runs.put(run, FirstClaim(submission=run.submission), now=START)
    batch.choosy.unanswered = set()
    assert kinds(await batch.submit_all(key="k")) == ["replay", "replay", "replay", "new", "replay"]
    assert batch.stored() == [0, 1, 2, 3, 4]


async def test_an_input_that_can_not_be_stored_returns_its_slot(batch: Batch) -> None:
    batch.ports["blobs"].before["put"] = [Unanswered("?")]
    asked = [
        Submission(tenant="acme", workflow="tiny", request_hash=digest(str(n)), input=value)
        for n, value in enumerate((0, "x" * 10_000, 2))
    ]
    assert kinds(await batch.send_in(asked)) == ["new", "Unanswered", "new"]
    assert await batch.slots_taken() == 2


async def test_a_row_refused_at_first_is_put_again_and_one_not_answered_recognises_itself(batch: Batch) -> None:
    batch.ports["runs"].before["put"] = [Throttled("no")]
    batch.ports["runs"].after["put"] = [Unanswered("?")]
    assert kinds(await batch.submit_all()) == ["new"] * 5
    assert (batch.stored(), await batch.slots_taken()) == ([0, 1, 2, 3, 4], 5)


async def test_rows_that_can_not_be_put_are_told_and_their_runs_go_on(batch: Batch) -> None:
    batch.ports["runs"].before["put"] = [Throttled("no")] * 1_000
    assert kinds(await batch.submit_all()) == ["Throttled"] * 5
    assert (await batch.slots_taken(), await batch.sent()) == (5, [0, 1, 2, 3, 4])


async def test_of_two_batches_with_one_key_at_once_one_stands_and_the_other_returns_its_slots(batch: Batch) -> None:
    async def another() -> None:
        await Batch(batch.memory).submit_all(3, key="k")
        await Batch(batch.memory).submit(key="k/3", body="another")

    batch.ports["queue"].before["send_many"] = [another]
    assert kinds(await batch.submit_all(5, key="k")) == ["replay", "replay", "replay", KeyReused.__name__, "new"]
    assert (len(batch.rows()), await batch.slots_taken()) == (5, 5)


async def test_an_unknown_workflow_is_its_runs_problem_and_is_read_once(batch: Batch) -> None:
    asked = [
        Submission(tenant="acme", workflow=name, request_hash=digest(name), input=0)
        for name in ("tiny", "no", "no", "tiny")
    ]
    assert kinds(await batch.send_in(asked)) == ["new", NotFound.__name__, NotFound.__name__, "new"]
    assert batch.calls.count("catalog.current") == 2
    assert await batch.slots_taken() == 2


# --- over HTTP --------------------------------------------------------------------------------


@pytest.fixture
async def http() -> Http:
    return await an_api()


async def an_api(settings: Settings | None = None) -> Http:
    http = Http(services=memory_services(settings))
    assert (await http("PUT", "/v1/workflows/tiny", TINY)).status == 201
    return http


async def posted(http: Http, *runs: Any, key: str | None = None) -> Reply:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await http("POST", "/v1/runs/batch", {"runs": list(runs)}, headers=headers)


async def test_results_come_in_order_and_one_bad_run_spoils_no_other(http: Http) -> None:
    good = {"workflow": "tiny", "input": 1}
    reply = await posted(
        http,
        good,
        {"workflow": "tiny", "inptu": 2, "lane": 7},
        "no run",
        {"workflow": "unknown"},
        {"workflow": "tiny", "lane": "express"},
        {**good, "delay": "5m"},
    )
    assert reply.status == 200
    results = reply.json["results"]
    assert [result["status"] for result in results] == [202, 422, 422, 404, 422, 202]
    assert set(results[0]) == {"status", "run"}
    assert set(results[0]["run"]) == {"id", "status", "workflow", "version", "created_at", "links", "estimate"}
    assert set(results[1]) == {"status", "problem"}
    # The problem that this run would have had alone, with pointers into it.
    assert {error["pointer"] for error in results[1]["problem"]["errors"]} == {"/inptu", "/lane"}
    assert results[3]["problem"]["type"] == "not-found"
    for result in (results[0], results[5]):
        assert (await http("GET", f"/v1/runs/{result['run']['id']}")).status == 200


async def test_a_keyed_batch_repeated_is_the_same_runs(http: Http) -> None:
    runs = [{"workflow": "tiny", "input": number} for number in range(3)]
    first = await posted(http, *runs, key="k")
    again = await posted(http, *runs, {"workflow": "tiny"}, key="k")
    assert [result["status"] for result in again.json["results"]] == [200, 200, 200, 202]
    ids = [result["run"]["id"] for result in first.json["results"]]
    assert [result["run"]["id"] for result in again.json["results"][:3]] == ids
    changed = await posted(http, {"workflow": "tiny", "input": "other"}, key="k")
    assert (changed.json["results"][0]["status"], changed.json["results"][0]["problem"]["type"]) == (409, "key-reused")


async def test_a_run_there_is_no_room_for_is_told_when_to_come_back() -> None:
    http = await an_api(settings_with(max_queue_depth=1))
    reply = await posted(http, *[{"workflow": "tiny"}] * 2)
    refused = reply.json["results"][1]
    assert (reply.status, refused["status"], refused["problem"]["type"]) == (200, 429, "queue-full")
    assert refused["problem"]["retry_after"] >= 1


async def test_each_run_of_a_batch_counts_against_the_tenants_rate() -> None:
    http = await an_api(Settings(submits_per_minute=3))
    reply = await posted(http, *[{"workflow": "tiny"}] * 5)
    assert [result["status"] for result in reply.json["results"]] == [202, 202, 202, 429, 429]
    assert (await http("POST", "/v1/runs", {"workflow": "tiny"})).status == 429


async def test_a_hundred_runs_are_taken_and_one_more_is_422(http: Http) -> None:
    reply = await posted(http, *[{"workflow": "tiny"}] * 100)
    assert [result["status"] for result in reply.json["results"]] == [202] * 100
    reply = await posted(http, *[{"workflow": "tiny"}] * 101)
    assert (reply.status, reply.json["errors"][0]["pointer"]) == (422, "/runs")
    assert (await http("GET", "/v1/queues")).json["queues"][0]["queued"] == 100


async def test_a_batch_over_the_bodys_limit_is_413() -> None:
    http = await an_api(Settings(max_body_bytes=1_000))
    assert (await posted(http, {"workflow": "tiny", "input": "x" * 1_000})).status == 413


@pytest.mark.parametrize("body", [{}, {"runs": {}}, {"runs": None}, [], {"runs": [], "more": 1}])
async def test_what_is_no_batch_is_422(http: Http, body: Any) -> None:
    assert (await http("POST", "/v1/runs/batch", json.dumps(body))).status == 422


async def test_an_empty_batch_is_nothing_done(http: Http) -> None:
    reply = await posted(http)
    assert (reply.status, reply.json) == (200, {"results": []})


async def test_an_error_nobody_meant_shows_nothing_of_itself(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(http.services.slots, "reserve", broken)
    reply = await posted(http, {"workflow": "tiny"})
    assert (reply.status, reply.json["results"][0]["status"]) == (200, 500)
    assert "secret" not in reply.text
