"""A damaged record, document or mark costs only itself: others go on, and the damaged one is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions.adapters.memory import MemoryRunStore
from functions.authorizer import verdict
from functions.engine.errors import Unreadable
from functions.engine.ports import Absent, Registered
from functions.engine.run import Run, Status
from functions.engine.workflow import version_of
from functions.runtime.credentials import mint
from functions.runtime.dead import revive
from functions.runtime.settings import ClassSettings
from functions.runtime.sweeper.settle import Settler
from functions.runtime.sweeper.sweep import sweep
from functions.runtime.workflows import WorkflowCache
from tests.contract.backends import DAMAGES, NEWER
from tests.support.builders import DEAD, LANE, a_run, an_envelope, key_of
from tests.support.clock import START
from tests.support.http import TINY, Http, memory_services
from tests.support.sweeping import TERMS, Swept
from tests.support.world import codec

OF_THIS_CODE = {name: damage for name, damage in DAMAGES.items() if damage is not NEWER}
damaged_in_any_way = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
LATE = START - timedelta(minutes=5)


def spoil(store: MemoryRunStore, run: Run, damage: Mapping[str, Any]) -> None:
    store._rows[key_of(run)] |= damage


def waiting(number: int) -> Run:
    return a_run(number, status=Status.WAITING, version=3, epoch=1, owner="c" * 16, due_at=LATE)


async def a_sweeper(*runs: Run, **settings: Any) -> tuple[Swept, MemoryRunStore]:
    it = await Swept(**settings).with_tenants()
    store = it.runs = it.services.runs._port = MemoryRunStore(codec())
    for run in runs:
        await store.put(run, Absent(), now=START)
    return it, store


@damaged_in_any_way
async def test_the_sweeper_looks_after_all_other_runs(damage: Mapping[str, Any]) -> None:
    dead = replace(waiting(4), status=Status.RUNNING, lease_until=LATE, due_at=None)
    it, store = await a_sweeper(waiting(1), waiting(2), waiting(3), dead)
    spoil(store, waiting(2), damage)
    report = await it.sweep()
    assert (report.rung, report.rescued, report.looked_at) == (2, 1, 3)


async def test_what_one_run_does_to_the_sweeper_costs_only_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    it, _ = await a_sweeper(waiting(1), *(replace(a_run(n), deadline=LATE) for n in (5, 6)))
    settled: list[str] = []

    async def settle(run: Run) -> bool:
        if run.id == a_run(5).id:
            raise ZeroDivisionError("a bug that this run meets")
        settled.append(run.id)
        return True

    report = await sweep(it.services, TERMS, now=it.clock.now(), settle=settle)
    assert (report.rung, report.failed, settled) == (1, 1, [a_run(6).id])


async def test_a_queued_run_whose_document_this_code_cannot_load_is_left_alone() -> None:
    it, _ = await a_sweeper(replace(a_run(1), deadline=LATE), replace(a_run(2), deadline=LATE))
    services = memory_services()
    settle = Settler(services, WorkflowCache(services.catalog, services.settings.classes), TERMS)
    report = await sweep(it.services, TERMS, now=it.clock.now(), settle=settle)
    assert (report.failed, report.settled) == (2, 0)


@pytest.mark.parametrize("mark", ["sweep.cursor", "sweep.empty", "sweep.places", "sweep.rung.model", "sweep.rescued"])
@pytest.mark.parametrize("value", [7, "text", [1], {"format": 1}, {"model/normal": 5}, {"format": 1, "walk": 3}])
async def test_a_mark_that_makes_no_sense_is_forgotten(mark: str, value: Any) -> None:
    it, _ = await a_sweeper(waiting(1))
    await it.marks.put(mark, value)
    assert (await it.sweep()).rung == 1


async def test_a_part_of_the_sweep_that_fails_for_one_class_is_done_for_the_others() -> None:
    classes = {"harness": ClassSettings(), "model": ClassSettings()}
    it, _ = await a_sweeper(waiting(1), replace(waiting(2), class_name="harness"), classes=classes)
    due = it.runs.due

    async def one_class_fails(class_name: str, *given: Any, **more: Any) -> Any:
        if class_name == "harness":
            raise TypeError("an index row that makes no sense")
        return await due(class_name, *given, **more)

    it.services.runs._port.due = one_class_fails
    with pytest.raises(ExceptionGroup) as failed:
        await it.sweep()
    assert [type(error) for error in failed.value.exceptions] == [TypeError]
    assert (await it.services.queue.depth(replace(LANE, role="resume"))).visible == 1


@damaged_in_any_way
async def test_a_list_names_it_and_shows_all_others(damage: Mapping[str, Any]) -> None:
    store = MemoryRunStore(codec())
    http = Http(services=replace(memory_services(), runs=store))
    for number in range(3):
        await store.put(a_run(number, created_at=START + timedelta(seconds=number)), Absent(), now=START)
    spoil(store, a_run(1), damage)
    listed = (await http("GET", "/v1/runs")).json["runs"]
    assert [(run["id"], run["status"]) for run in listed] == [
        (a_run(2).id, "queued"),
        (a_run(1).id, "unreadable"),
        (a_run(0).id, "queued"),
    ]
    assert listed[1]["error"]["type"] == "unreadable"
    assert [run["id"] for run in (await http("GET", "/v1/runs?workflow=tiny")).json["runs"]] == [
        a_run(2).id,
        a_run(0).id,
    ]


@pytest.mark.parametrize("damage", OF_THIS_CODE.values(), ids=OF_THIS_CODE)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/signals/x"), ("POST", "/redrive")],
)
async def test_asked_for_it_the_api_says_that_it_cannot_be_read(
    damage: Mapping[str, Any], method: str, path: str
) -> None:
    store = MemoryRunStore(codec())
    http = Http(services=replace(memory_services(), runs=store))
    await store.put(a_run(1), Absent(), now=START)
    spoil(store, a_run(1), damage)
    reply = await http(method, f"/v1/runs/{a_run(1).id}{path}")
    assert (reply.status, reply.json["type"], "retry-after" in reply.headers) == (500, "unreadable", False)


@damaged_in_any_way
async def test_a_dead_letter_of_it_stays_and_others_go_their_way(damage: Mapping[str, Any]) -> None:
    store = MemoryRunStore(codec())
    services = replace(memory_services(), runs=store)
    for number in (1, 2):
        await store.put(a_run(number), Absent(), now=START)
        await services.queue.send(DEAD, an_envelope(number))
    spoil(store, a_run(1), damage)
    letters = await services.queue.receive(DEAD, limit=10, wait_seconds=0, visibility_seconds=60)
    stay = {letter.message_id for letter in letters if letter.message and letter.message.run_id == a_run(1).id}
    assert set(await revive(services, letters, now=START)) == stay


async def test_a_bug_in_one_dead_letters_handling_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    services = memory_services()
    for number in (1, 2):
        await services.queue.send(DEAD, an_envelope(number))
    letters = await services.queue.receive(DEAD, limit=10, wait_seconds=0, visibility_seconds=60)
    get = services.runs.get

    async def get_or_not(key: Any, **given: Any) -> Any:
        if key.run_id == a_run(1).id:
            raise ZeroDivisionError("a bug")
        return await get(key, **given)

    monkeypatch.setattr(services.runs, "get", get_or_not)
    stay = [letter.message_id for letter in letters if letter.message and letter.message.run_id == a_run(1).id]
    assert await revive(services, letters, now=START) == stay


@pytest.mark.parametrize(
    "document",
    [
        {**TINY, "steps": {"only": {"task": "core.echo", "join": "quorum"}}},
        {"name": "tiny", "steps": 5},
        [],
        "a text",
        {**TINY, "class": []},
    ],
)
async def test_a_document_that_this_code_cannot_load_costs_only_its_own_runs(document: Any) -> None:
    http = Http(services=memory_services())
    await http("PUT", "/v1/workflows/tiny", TINY)
    newer = Registered(name="newer", version=version_of(document), document=document, created_at=START)
    await http.services.catalog.register("acme", newer)
    reply = await http("POST", "/v1/runs", {"workflow": "newer"})
    assert (reply.status, reply.json["type"]) == (500, "unreadable")
    assert (await http("POST", "/v1/runs", {"workflow": "tiny"})).status == 202
    listed = (await http("GET", "/v1/workflows")).json["workflows"]
    assert [workflow["name"] for workflow in listed] == ["newer", "tiny"]
    pinned = replace(a_run(1), workflow="newer", workflow_version=newer.version)
    await http.services.runs.put(pinned, Absent(), now=START)
    assert (await http("GET", f"/v1/runs/{pinned.id}")).json["status"] == "queued", "its record can be read"
    cancelled = await http("POST", f"/v1/runs/{pinned.id}/cancel")
    assert (cancelled.status, cancelled.json["type"]) == (500, "unreadable")


async def test_a_document_that_does_not_have_its_versions_hash_is_not_loaded() -> None:
    services = memory_services()
    other = Registered(name="tiny", version=version_of({"other": 1}), document=TINY, created_at=START)
    await services.catalog.register("acme", other)
    cache = WorkflowCache(services.catalog, services.settings.classes)
    with pytest.raises(Unreadable, match="hash"):
        await cache.get("acme", "tiny", other.version)


async def test_a_token_that_cannot_be_read_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    services = memory_services()
    text, token = mint(tenant="acme", owner="Ada", scopes=frozenset({"read"}), now=START, draw=lambda n: b"x" * n)
    await services.tokens.put(token)

    async def unreadable(token_id: str) -> None:
        raise Unreadable("the item #tokens/… can't be read")

    event = {"headers": {"authorization": f"Bearer {text}"}}
    assert (await verdict(event, services.tokens, now=START))["verdict"] == "ok"
    monkeypatch.setattr(services.tokens, "get", unreadable)
    assert await verdict(event, services.tokens, now=START) == {"verdict": "unknown"}
