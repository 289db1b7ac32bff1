"""An operator's calls over HTTP: what they answer, and what they leave in record and queue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fanfold.adapters.memory import MemoryBlobs
from fanfold.engine.errors import Unanswered
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import IfVersion, RunKey
from fanfold.engine.record.messages import Envelope, Wake
from fanfold.engine.record.run import Failure, Run, Status
from fanfold.engine.record.sealing import merged
from fanfold.engine.rules.decide import decide
from fanfold.engine.rules.effects import ReleaseSlot
from fanfold.engine.rules.events import AttemptFailed, AttemptSucceeded, Claimed, Event
from fanfold.service.api.access import Scope
from fanfold.service.api.routes import CALLS, Call
from fanfold.service.engine_limits import engine_limits
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.builders import LANE, RESUMING
from tests.support.faults import Fault, Faulty
from tests.support.http import Http, Reply, memory_services, settings_with

GATED = {
    "name": "gated",
    "steps": {
        "ask": {"task": "core.echo", "input": "${input}"},
        "gate": {"wait": {"signal": "approve", "timeout": "12h"}, "needs": ["ask"]},
        "act": {"task": "core.echo", "needs": ["gate"], "input": "${steps.gate.output}"},
    },
}


@pytest.fixture
async def http() -> Http:
    http = Http(services=memory_services(settings_with(max_queue_depth=2)))
    assert (await http("PUT", "/v1/workflows/gated", GATED)).status == 201
    return http


async def submitted(http: Http, **body: Any) -> str:
    reply = await http("POST", "/v1/runs", {"workflow": "gated", **body})
    assert reply.status == 202, reply.text
    return str(reply.json["id"])


async def row(http: Http, run_id: str) -> Run:
    run = await http.services.runs.get(RunKey(tenant="acme", run_id=run_id), now=http.services.clock.now())
    assert run is not None
    return run


async def play(http: Http, run_id: str, *events: Event) -> Run:
    """Move a run as its holder would."""
    services = http.services
    workflows = WorkflowCache(services.catalog, services.settings.classes)
    for event in events:
        run = await row(http, run_id)
        workflow = await workflows.get(run.tenant, run.workflow, run.workflow_version)
        loaded = {run.origin.checkpoints.key: await services.blobs.get(run.origin.checkpoints)} if run.origin else {}
        limits = engine_limits(services.settings)
        decision = decide(run, workflow, (event,), services.clock.now(), limits=limits, loaded=loaded)
        written = replace(decision.run, version=run.version + 1, write_id=services.ids.token())
        await services.runs.put(written, IfVersion(version=run.version, submission=run.submission), now=run.created_at)
        for effect in decision.effects:
            if isinstance(effect, ReleaseSlot):
                await services.slots.give_back(effect.class_name, effect.slot)
    return await row(http, run_id)


CLAIM = Claimed(owner="c" * 16, worker="w")
ASKED = AttemptSucceeded(step="ask", attempt=1, output="asked")


async def at_the_gate(http: Http) -> str:
    run_id = await submitted(http)
    await play(http, run_id, CLAIM, ASKED)
    return run_id


async def wakes(http: Http) -> list[Wake]:
    received = await http.services.queue.receive(RESUMING, limit=10, wait_seconds=0, visibility_seconds=30)
    return [item.message for item in received if isinstance(item.message, Wake)]


async def move(http: Http, run_id: str, what: str, body: Any = None, *, key: str | None = None, **given: Any) -> Reply:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await http("POST", f"/v1/runs/{run_id}/{what}", body, headers=headers, **given)


# --- signals ----------------------------------------------------------------------------------


async def test_a_signal_is_in_the_journal_and_rings_at_once(http: Http) -> None:
    run_id = await at_the_gate(http)
    reply = await move(http, run_id, "signals/approve", {"why": "fine"})
    assert reply.status == 202
    run = await row(http, run_id)
    told = next(entry for entry in run.journal if entry.seq == reply.json["seq"])
    assert (told.type, told.data) == ("signal.received", {"name": "approve", "by": "Ada", "payload": {"why": "fine"}})
    assert [wake.run_id for wake in await wakes(http)] == [run_id]


async def test_a_signal_without_a_body_says_null(http: Http) -> None:
    run_id = await at_the_gate(http)
    assert (await move(http, run_id, "signals/approve")).status == 202
    assert (await row(http, run_id)).steps["gate"].output is None


async def test_a_repeated_signal_with_its_key_answers_what_it_answered(http: Http) -> None:
    run_id = await at_the_gate(http)
    first = await move(http, run_id, "signals/approve", {"n": 1}, key="k")
    again = await move(http, run_id, "signals/approve", {"n": 1}, key="k")
    assert (first.status, again.status, again.json) == (202, 200, first.json)
    assert again.headers["idempotent-replayed"] == "true"
    other = await move(http, run_id, "signals/approve", {"n": 2}, key="k")
    assert (other.status, other.json["type"]) == (409, "key-reused")


async def test_the_same_signal_in_another_form_is_the_same_signal(http: Http) -> None:
    run_id = await at_the_gate(http)
    first = await move(http, run_id, "signals/approve", '{"a": 1, "b": 2}', key="k")
    again = await move(http, run_id, "signals/approve", '{"b":2,"a":1}', key="k")
    assert (first.status, again.status, again.json) == (202, 200, first.json)


async def test_the_same_fork_in_another_form_is_the_same_fork(http: Http) -> None:
    run_id = await at_the_gate(http)
    first = await move(http, run_id, "fork", '{"from_step": "gate", "input": 1}', key="k")
    again = await move(http, run_id, "fork", '{"input":1,"from_step":"gate"}', key="k")
    assert (first.status, again.status, again.json["id"]) == (202, 200, first.json["id"])


async def test_a_signal_repeated_after_the_end_of_its_run_is_still_answered(http: Http) -> None:
    run_id = await at_the_gate(http)
    first = await move(http, run_id, "signals/approve", {"n": 1}, key="k")
    await move(http, run_id, "cancel")
    assert (await move(http, run_id, "signals/approve", {"n": 1}, key="k")).json == first.json
    assert (await move(http, run_id, "signals/approve", {"n": 1}, key="other")).status == 409


async def test_a_payload_over_one_kilobyte_is_kept_by_reference_and_over_256_is_too_large(http: Http) -> None:
    run_id = await at_the_gate(http)
    assert (await move(http, run_id, "signals/approve", ["x" * 2_000])).status == 202
    output = (await row(http, run_id)).steps["gate"].output
    assert isinstance(output, BlobRef)
    assert await http.services.blobs.get(output) == ["x" * 2_000]
    assert (await move(http, run_id, "signals/approve", ["x" * 262_140])).status == 202
    reply = await move(http, run_id, "signals/approve", ["x" * 262_141])
    assert (reply.status, reply.json["type"]) == (413, "too-large")


async def test_the_hundred_and_first_signal_nobody_took_is_a_conflict_that_says_so(http: Http) -> None:
    run_id = await at_the_gate(http)
    for number in range(100):
        assert (await move(http, run_id, "signals/other", number)).status == 202
    reply = await move(http, run_id, "signals/other", 100)
    assert (reply.status, reply.json["type"]) == (409, "wrong-state")
    assert "100 signals" in reply.json["detail"]


@pytest.mark.parametrize("name", ["Approve", "a%20b", "9", "a" * 64])
async def test_a_name_no_wait_can_have_is_refused(http: Http, name: str) -> None:
    reply = await move(http, await at_the_gate(http), f"signals/{name}", {})
    assert (reply.status, reply.json["type"]) == (422, "invalid-parameter")


@pytest.mark.parametrize("body", ["{", '{"a": NaN}', '{"a": 1, "a": 2}'])
async def test_a_payload_that_is_no_json_is_malformed(http: Http, body: str) -> None:
    assert (await move(http, await at_the_gate(http), "signals/approve", body)).status == 400


# --- cancel, pause, resume ----------------------------------------------------------------------


async def test_a_queued_run_is_cancelled_at_once_and_its_slot_is_free(http: Http) -> None:
    run_id = await submitted(http)
    await submitted(http)
    assert (await http("POST", "/v1/runs", {"workflow": "gated"})).status == 429
    reply = await move(http, run_id, "cancel")
    assert (reply.status, reply.json["status"]) == (202, "cancelled")
    assert (await move(http, run_id, "cancel")).status == 200
    assert (await http("POST", "/v1/runs", {"workflow": "gated"})).status == 202
    shown = await http("GET", f"/v1/runs/{run_id}")
    assert shown.json["finished_at"] is not None
    assert {name: step["status"] for name, step in shown.json["steps"].items()} == dict.fromkeys(
        ["ask", "gate", "act"], "pending"
    )


async def test_a_paused_run_is_resumed_and_rung_for(http: Http) -> None:
    run_id = await at_the_gate(http)
    assert [(await move(http, run_id, what)).status for what in ("pause", "pause")] == [202, 200]
    reply = await move(http, run_id, "resume")
    assert (reply.status, reply.json["status"]) == (202, "waiting")
    assert (await move(http, run_id, "resume")).status == 200
    assert len(await wakes(http)) == 1


@pytest.mark.parametrize("what", ["pause", "resume", "signals/approve", "redrive"])
async def test_a_conflict_says_the_runs_state(http: Http, what: str) -> None:
    run_id = await at_the_gate(http)
    await move(http, run_id, "signals/approve", {"ok": True})
    await play(http, run_id, Claimed(owner="d" * 16, worker="w"))
    await play(http, run_id, AttemptSucceeded(step="act", attempt=1, output="done"))
    reply = await move(http, run_id, what)
    assert (reply.status, reply.json["type"]) == (409, "wrong-state")
    assert "the run is succeeded" in reply.json["detail"]
    assert (await move(http, run_id, "cancel")).status == 409


# --- redrive and fork ---------------------------------------------------------------------------


async def test_a_cancelled_run_is_redriven_once_per_key(http: Http) -> None:
    run_id = await at_the_gate(http)
    await move(http, run_id, "cancel")
    first = await move(http, run_id, "redrive", key="k")
    assert (first.status, first.json["status"]) == (202, "waiting")
    again = await move(http, run_id, "redrive", key="k")
    assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
    assert (await row(http, run_id)).try_number == 2
    assert (await move(http, run_id, "redrive")).status == 409


async def test_a_fork_takes_over_what_is_not_downstream_of_its_step(http: Http) -> None:
    run_id = await at_the_gate(http)
    reply = await move(http, run_id, "fork", {"from_step": "gate"})
    assert reply.status == 202
    assert reply.headers["location"] == f"v1/runs/{reply.json['id']}"
    envelopes = await http.services.queue.receive(LANE, limit=10, wait_seconds=0, visibility_seconds=30)
    assert isinstance(envelopes[-1].message, Envelope)
    fork = await play(http, reply.json["id"], CLAIM)
    assert (fork.steps["ask"].output, fork.steps["ask"].attempts) == ("asked", 0)
    assert (fork.status, fork.steps["gate"].status) == (Status.WAITING, "waiting")
    assert fork.journal[0].data == {"forked_from": run_id, "from_step": "gate"}


async def test_a_fork_may_have_another_input_and_another_version(http: Http) -> None:
    run_id = await submitted(http, input={"old": True}, tags={"team": "blue"})
    await play(http, run_id, CLAIM, ASKED)
    steps = {**GATED["steps"], "more": {"task": "core.echo", "needs": ["act"]}}  # type: ignore[dict-item]  # a dict of dicts
    version = (await http("PUT", "/v1/workflows/gated", {**GATED, "steps": steps})).json["version"]
    reply = await move(http, run_id, "fork", {"from_step": "ask", "input": {"new": True}, "version": version})
    fork = await play(http, reply.json["id"], CLAIM)
    assert (fork.input, fork.workflow_version, dict(fork.tags)) == ({"new": True}, version, {"team": "blue"})
    assert fork.steps["ask"].status == "running"
    same = await play(http, (await move(http, run_id, "fork", {"from_step": "ask"})).json["id"], CLAIM)
    assert same.input == {"old": True}


async def test_a_fork_takes_a_slot_and_is_the_same_run_with_the_same_key(http: Http) -> None:
    run_id = await at_the_gate(http)
    first = await move(http, run_id, "fork", {"from_step": "gate"}, key="k")
    again = await move(http, run_id, "fork", {"from_step": "gate"}, key="k")
    assert (first.status, again.status, again.json["id"]) == (202, 200, first.json["id"])
    assert (await move(http, run_id, "fork", {"from_step": "ask"}, key="k")).status == 409
    assert (await move(http, run_id, "fork", {"from_step": "gate"})).status == 202
    assert (await move(http, run_id, "fork", {"from_step": "gate"})).status == 429


async def test_a_fork_from_an_unknown_step_or_version_is_refused(http: Http) -> None:
    run_id = await at_the_gate(http)
    reply = await move(http, run_id, "fork", {"from_step": "nowhere"})
    assert (reply.status, reply.json["errors"][0]["pointer"]) == (422, "/from_step")
    assert (await move(http, run_id, "fork", {"from_step": "ask", "version": "sha256:x"})).status == 404
    assert (await move(http, run_id, "fork", {})).status == 422


# --- who, and at the same time --------------------------------------------------------------------


@pytest.mark.parametrize("what", ["cancel", "pause", "resume", "redrive", "signals/approve", "fork"])
async def test_a_token_without_the_scope_and_a_stranger_move_nothing(http: Http, what: str) -> None:
    run_id = await at_the_gate(http)
    before = await row(http, run_id)
    body = {"from_step": "ask"}
    assert (await move(http, run_id, what, body, scopes="submit read admin")).status == 403
    assert (await move(http, run_id, what, body, tenant="other")).status == 404
    assert (await move(http, "r" + "a" * 25, what, body)).status == 404
    assert await row(http, run_id) == before


SECRET = "only for readers"
FAILED = AttemptFailed(step="ask", attempt=1, failure=Failure(type="Fail", message=SECRET), retryable=False, chance=0.5)
SAID = replace(ASKED, output=SECRET)
OTHERS = [call for call in CALLS if call.scope not in (None, Scope.READ)]


@pytest.mark.parametrize("call", OTHERS, ids=lambda call: call.name)
async def test_only_the_scope_read_shows_what_went_into_a_run_and_came_out(call: Call) -> None:
    """Each call by a token with its scope alone, and by one that may read too."""
    http = Http(services=memory_services())
    await http("PUT", "/v1/workflows/gated", GATED)
    body: Any = {"runs": [{"workflow": "gated"}]} if "{id}" not in call.path else {"from_step": "ask"}
    body = {"registerWorkflow": GATED, "submitRun": {"workflow": "gated"}}.get(call.name, body)
    shown = []
    for scopes in (str(call.scope), f"{call.scope} read"):
        run_id = await submitted(http, input={"said": SECRET})
        await play(http, run_id, CLAIM, FAILED if call.name == "redriveRun" else SAID)
        path = call.path.replace("{id}", run_id).replace("{name}", "gated" if call.document else "approve")
        reply = await http(call.method, path, body, scopes=scopes)
        assert reply.status < 300, reply.text
        shown.append(SECRET in reply.text or "v1/stream/" in reply.text)
    assert shown == [False, call.name not in ("registerWorkflow", "signalRun")]


async def test_an_operator_who_may_not_read_still_sees_where_the_run_stands(http: Http) -> None:
    run_id = await submitted(http, input={"said": SECRET})
    await play(http, run_id, CLAIM, SAID)
    seen = (await move(http, run_id, "pause", scopes="operate")).json
    whole = (await http("GET", f"/v1/runs/{run_id}")).json
    assert set(seen) == set(whole)
    assert (seen["status"], seen["input"], seen["output"]) == ("paused", None, None)
    assert {name: step["status"] for name, step in seen["steps"].items()} == {
        name: step["status"] for name, step in whole["steps"].items()
    }
    assert seen["links"] == {name: link for name, link in whole["links"].items() if name != "stream"}


# --- what is left in the bucket -----------------------------------------------------------------


async def test_a_refused_signal_leaves_no_object(http: Http) -> None:
    payload = {"said": "x" * 5_000}
    run_id = await submitted(http)
    for _ in range(100):
        assert (await move(http, run_id, "signals/nobody", payload)).status == 202
    stored = set(objects(http))
    assert len(stored) == 1  # the same payload is the same object
    for name in range(3):
        assert (await move(http, run_id, "signals/nobody", [name, payload])).status == 409
    assert (await move(http, run_id, "signals/approve", payload, key="k")).status == 202
    assert (await move(http, run_id, "signals/approve", [payload], key="k")).status == 409
    await move(http, run_id, "cancel")
    assert (await move(http, run_id, "signals/approve", [payload])).status == 409
    assert set(objects(http)) == stored


async def test_a_fork_that_is_refused_or_repeated_leaves_no_object(http: Http) -> None:
    run_id = await at_the_gate(http)
    before = set(objects(http))
    first = await move(http, run_id, "fork", {"from_step": "gate"}, key="k")
    made = set(objects(http))
    assert [key.split("/")[1] for key in made - before] == [first.json["id"]]
    assert (await move(http, run_id, "fork", {"from_step": "gate"}, key="k")).status == 200
    assert (await move(http, run_id, "fork", {"from_step": "ask"}, key="k")).status == 409
    assert (await move(http, run_id, "fork", {"from_step": "gate"})).status == 202
    last = set(objects(http))
    assert (await move(http, run_id, "fork", {"from_step": "gate"})).status == 429
    assert set(objects(http)) == last


def objects(http: Http) -> list[str]:
    """The keys of everything in the bucket."""
    blobs = http.services.blobs
    assert isinstance(blobs, MemoryBlobs)
    return list(blobs.keys)


async def test_of_two_operators_at_once_one_wins_and_the_other_sees_it(http: Http) -> None:
    run_id = await at_the_gate(http)
    replies = await asyncio.gather(*(move(http, run_id, what) for what in ("cancel", "pause", "cancel", "pause")))
    statuses = sorted(reply.status for reply in replies)
    run = await row(http, run_id)
    assert run.status is Status.CANCELLED
    assert statuses in ([200, 202, 409, 409], [200, 200, 202, 202])
    assert sum(entry.type == "run.cancel_requested" for entry in run.journal) == 1


async def test_signals_that_come_together_are_all_received(http: Http) -> None:
    run_id = await at_the_gate(http)
    replies = await asyncio.gather(*(move(http, run_id, "signals/other", n) for n in range(20)))
    assert {reply.status for reply in replies} == {202}
    assert sorted(str(signal.payload) for signal in (await row(http, run_id)).signals) == sorted(map(str, range(20)))
    assert len({reply.json["seq"] for reply in replies}) == 20


async def test_a_signal_whose_write_was_not_answered_is_received_once(http: Http) -> None:
    run_id = await at_the_gate(http)
    put = http.services.runs.put
    lost = iter([True, True])

    async def unanswered(*given: Any, **named: Any) -> Any:
        result = await put(*given, **named)
        if next(lost, False):
            raise Unanswered("the answer was lost")
        return result

    http.services.runs.put = unanswered  # type: ignore[method-assign]  # a network that loses an answer
    assert (await move(http, run_id, "signals/other", {"once": True})).status == 202
    assert [signal.payload for signal in (await row(http, run_id)).signals] == [{"once": True}]


@pytest.mark.parametrize("answer", [Fault.NONE, Fault.DONE])
async def test_a_signal_that_is_sealed_away_as_it_is_put_is_recognised_and_answered_with_its_entry(
    answer: Fault,
) -> None:
    """A record near the store's limit is put with all but its last entry sealed, the signal's own among them."""
    services = memory_services(settings_with(max_queue_depth=2))
    faulty = Faulty(services.runs)
    http = Http(services=replace(services, runs=faulty))
    assert (await http("PUT", "/v1/workflows/gated", GATED)).status == 201
    run_id = await at_the_gate(http)
    before = faulty.count("put")
    faulty.plan("put", Fault.TOO_BIG, answer)
    reply = await move(http, run_id, "signals/approve", {"why": "fine"})
    assert reply.status == 202
    assert faulty.count("put") - before == 2, "one that was too big, and one that was done"
    run = await row(http, run_id)
    whole = merged(run, await services.runs.segments(run))
    received = [entry for entry in whole.journal if entry.type == "signal.received"]
    assert [entry.seq for entry in received] == [reply.json["seq"]]
    assert received[0].seq <= run.sealed.last_seq
