"""A damaged record, document or mark costs only itself: others go on, and the damaged one is named."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.adapters.memory import MemoryBlobs, MemoryRunStore
from fanfold.adapters.packing import deflate, inflate
from fanfold.engine.errors import PayloadLost, Unreadable
from fanfold.engine.language.workflow import version_of
from fanfold.engine.payload import BlobRef, SealedStep, of_loaded
from fanfold.engine.ports import IfAbsent, Registered
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import SCHEMA, Failure, Run, Sealed, Status, StepState, StepStatus
from fanfold.engine.record.segments import Segment
from fanfold.service.bearer_tokens import mint
from fanfold.service.dead_letters import revive
from fanfold.service.functions.authorizer import verdict
from fanfold.service.maps import map_key
from fanfold.service.payloads import Payloads
from fanfold.service.settings import ClassSettings
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.workflow_cache import WorkflowCache
from tests.contract.backends import DAMAGES, NEWER, PARTS
from tests.support.builders import DEAD, LANE, a_full_run, a_run, a_submission, an_envelope, key_of
from tests.support.clock import START
from tests.support.http import TINY, Http, memory_services
from tests.support.operators import REDRIVE, operate
from tests.support.sweeping import LIMITS, Swept
from tests.support.virtual import virtually
from tests.support.world import World, codec, with_fan_out

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
        await store.put(run, IfAbsent(), now=START)
    return it, store


@damaged_in_any_way
async def test_the_sweeper_looks_after_all_other_runs(damage: Mapping[str, Any]) -> None:
    dead = replace(waiting(4), status=Status.RUNNING, lease_until=LATE, due_at=None)
    it, store = await a_sweeper(waiting(1), waiting(2), waiting(3), dead)
    spoil(store, waiting(2), damage)
    report = await it.sweep()
    assert (report.wakes_sent, report.rescued, report.checked) == (2, 1, 3)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each part of a JSON value, the whole first."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from leaves(part, (*path, key))


def with_part(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    """The value with another part in a place of it."""
    if not path:
        return part
    copied = value.copy()
    copied[path[0]] = with_part(value[path[0]], path[1:], part)
    return copied


@pytest.mark.parametrize("part", [-1, "x", 10**30, 1.5, None, [], {}, [1, 2, 3]], ids=repr)
async def test_a_record_with_one_part_of_another_kind_can_be_shown_or_is_unreadable(part: Any) -> None:
    reference = BlobRef(key="acme/input", bytes=9_000, sha256="0" * 64)
    run = a_full_run(2, due_at=LATE, input=reference, error=Failure(type="step_failed", message="only"))
    whole = inflate(codec().encode(run)["b"]["B"], schema=SCHEMA)
    it, store = await a_sweeper(run, waiting(3))
    http = Http(services=replace(memory_services(), runs=store))
    for path in leaves(whole):
        spoil(store, run, {"b": {"B": deflate(with_part(whole, path, part), schema=SCHEMA)}})
        listed = await http("GET", "/v1/runs")
        assert (listed.status, len(listed.json["runs"])) == (200, 2), path
        for of_it in ("", "/events"):
            reply = await http("GET", f"/v1/runs/{run.id}{of_it}")
            assert reply.status == 200 or (reply.status, reply.json["type"]) == (500, "unreadable"), (path, of_it)
        assert (await it.sweep()).wakes_sent >= 1, path


async def test_what_one_run_does_to_the_sweeper_costs_only_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    it, _ = await a_sweeper(waiting(1), *(replace(a_run(n), deadline=LATE) for n in (5, 6)))
    settled: list[str] = []

    async def settle(run: Run) -> bool:
        if run.id == a_run(5).id:
            raise ZeroDivisionError("a bug that this run meets")
        settled.append(run.id)
        return True

    report = await sweep(it.services, LIMITS, now=it.clock.now(), expire=settle)
    assert (report.wakes_sent, report.failed, settled) == (1, 1, [a_run(6).id])


async def test_a_queued_run_whose_document_this_code_cannot_load_is_left_alone() -> None:
    it, _ = await a_sweeper(replace(a_run(1), deadline=LATE), replace(a_run(2), deadline=LATE))
    services = memory_services()
    settle = QueueExpiry(services, WorkflowCache(services.catalog, services.settings.classes), LIMITS)
    report = await sweep(it.services, LIMITS, now=it.clock.now(), expire=settle)
    assert (report.failed, report.expired) == (2, 0)


@pytest.mark.parametrize("mark", ["sweep.cursor", "sweep.empty", "sweep.slots", "sweep.wakes.model", "sweep.rescued"])
@pytest.mark.parametrize("value", [7, "text", [1], {"format": 1}, {"model/normal": 5}, {"format": 1, "walk": 3}])
async def test_a_mark_that_makes_no_sense_is_forgotten(mark: str, value: Any) -> None:
    it, _ = await a_sweeper(waiting(1))
    await it.sweeper_state.put(mark, value)
    assert (await it.sweep()).wakes_sent == 1


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
        await store.put(a_run(number, created_at=START + timedelta(seconds=number)), IfAbsent(), now=START)
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
    await store.put(a_run(1), IfAbsent(), now=START)
    spoil(store, a_run(1), damage)
    reply = await http(method, f"/v1/runs/{a_run(1).id}{path}")
    assert (reply.status, reply.json["type"], "retry-after" in reply.headers) == (500, "unreadable", False)


@damaged_in_any_way
async def test_a_dead_letter_of_it_stays_and_others_go_their_way(damage: Mapping[str, Any]) -> None:
    store = MemoryRunStore(codec())
    services = replace(memory_services(), runs=store)
    for number in (1, 2):
        await store.put(a_run(number), IfAbsent(), now=START)
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
    await http.services.runs.put(pinned, IfAbsent(), now=START)
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


# --- what a record refers to ------------------------------------------------------------------


SEALED = Segment(
    name=f"{a_submission()}#0000000001#a#00",
    previous=None,
    entries=tuple(Entry(seq=seq, at=START, type=EventType.STEP_STARTED, step="s1", attempt=seq) for seq in (1, 2)),
    steps={"s1": StepState(status=StepStatus.SUCCEEDED, attempts=1, started_at=START, finished_at=START, output=1)},
)
OF_THESE_PARTS = {name: damage for name, damage in PARTS.items() if damage is not NEWER}


async def a_sealed_run(damage: Mapping[str, Any] | None) -> tuple[MemoryRunStore, Run]:
    """A run with two sealed entries, in a store whose segment of it is damaged, or gone (None)."""
    store = MemoryRunStore(codec())
    run = a_full_run(sealed=Sealed(newest=SEALED.name, last_seq=2, statuses="s.."))
    await store.put(run, IfAbsent(), now=START)
    if damage is not None:
        await store.put_segment(key_of(run), SEALED, now=START)
        store._segments[key_of(run)][0].update(damage)
    return store, run


@pytest.mark.parametrize("damage", [*OF_THESE_PARTS.values(), None], ids=[*OF_THESE_PARTS, "gone"])
async def test_a_run_of_which_a_sealed_part_is_damaged_says_so_and_is_no_riddle(
    damage: Mapping[str, Any] | None,
) -> None:
    store, run = await a_sealed_run(damage)
    http = Http(services=replace(memory_services(), runs=store))
    await store.put(a_run(7), IfAbsent(), now=START)
    for path in ("", "/events"):
        reply = await http("GET", f"/v1/runs/{run.id}{path}")
        assert (reply.status, reply.json["type"]) == (500, "unreadable")
    assert {each["id"] for each in (await http("GET", "/v1/runs")).json["runs"]} == {run.id, a_run(7).id}
    assert (await http("GET", f"/v1/runs/{a_run(7).id}")).status == 200


@pytest.mark.parametrize("damage", OF_THESE_PARTS.values(), ids=OF_THESE_PARTS)
async def test_nobody_waits_for_a_damaged_sealed_part_to_become_whole(damage: Mapping[str, Any]) -> None:
    store, run = await a_sealed_run(damage)
    services = memory_services()
    payloads = Payloads(store, services.blobs, services.clock)

    def ask(loaded: Mapping[str, Any]) -> Any:
        return of_loaded(SealedStep(step="s1"), loaded)

    with pytest.raises(PayloadLost):
        await payloads.provide(run, ask, patient=True)


BIG = {
    "steps": {
        "big": {"task": "chaos.output", "input": {"bytes": 20_000}},
        "hold": {"wait": {"for": "10m"}, "needs": ["big"]},
        "use": {"task": "core.echo", "needs": ["hold"], "input": {"of": "${steps.big.output}"}},
    }
}


@virtually
async def test_a_damaged_payload_fails_the_step_that_needs_it_and_no_other_run() -> None:
    world = World()
    workflow = await world.register(BIG)
    envelopes = [await world.submit(workflow) for _ in range(3)]
    async with world.worker(concurrency=1):
        await asyncio.sleep(300)
        for envelope, damage in zip(envelopes, (b"garbage", b'"another"', None), strict=True):
            (key,) = (key for key in world.blobs.keys if envelope.run_id in key)
            if damage is not None:
                world.blobs._objects[key] = damage
        runs = [await world.ended(envelope, within=7_200) for envelope in envelopes]
    assert [run.status for run in runs] == [Status.FAILED, Status.FAILED, Status.SUCCEEDED]
    for run in runs[:2]:
        fault = run.steps["use"].error
        assert fault is not None
        assert (fault.type, "is not the one that was stored" in fault.message) == ("input_unavailable", True)


async def test_a_damaged_payload_is_told_of_and_the_run_is_shown_without_it() -> None:
    http = Http(services=memory_services())
    await http("PUT", "/v1/workflows/tiny", TINY)
    run_id = (await http("POST", "/v1/runs", {"workflow": "tiny", "input": "x" * 20_000})).json["id"]
    blobs = http.services.blobs
    assert isinstance(blobs, MemoryBlobs)
    (key,) = blobs.keys
    for damage in (b"garbage", None):
        blobs._objects[key] = damage if damage is not None else blobs._objects.pop(key)[:-1]
        assert (await http("GET", f"/v1/runs/{run_id}")).json["input"]["$ref"] == key
        reply = await http("GET", f"/v1/runs/{run_id}?inline=true")
        assert (reply.status, reply.json["type"], "retry-after" in reply.headers) == (500, "unreadable", False)


def a_map(via: str, **given: Any) -> dict[str, Any]:
    each = {"over": "${input}", "task": "probe.play", "via": via, "max_concurrency": 1, **given}
    return {"steps": {"each": {"map": each, "timeout": "30s"}}, "output": "${steps.each.output}"}


async def spoil_batches(world: World, envelope: Any, damage: Mapping[str, Any]) -> int:
    """Damages every record of the run's map; returns how many there are."""
    items = list(world.map_records._partitions[map_key(await world.row(envelope), "each")].values())
    for item in items:
        item.update(damage)
    return len(items)


@pytest.mark.parametrize("damage", OF_THESE_PARTS.values(), ids=OF_THESE_PARTS)
@virtually
async def test_items_whose_record_is_damaged_are_not_worked_on_again_until_an_operator_says_so(
    damage: Mapping[str, Any],
) -> None:
    world = World(settings=with_fan_out())
    items = [{"ms": 10_000, "out": n} for n in range(6)]
    envelope = await world.submit(await world.register(a_map("inline")), items)
    first = world.process()
    async with first.worker():
        await asyncio.sleep(35)
        await first.kill()
    assert await spoil_batches(world, envelope, damage)
    async with world.worker():
        run = await world.ended(envelope, within=600)
        assert (run.status, run.steps["each"].error and run.steps["each"].error.type) == (
            Status.FAILED,
            "items_unreadable",
        )
        assert Counter(seen.index for seen in world.log if seen.what == "start") == dict.fromkeys(range(4), 1)
        await operate(world, envelope, REDRIVE)
        run = await world.ended(envelope, within=600)
    assert run.output == list(range(6))


@pytest.mark.parametrize("damage", OF_THESE_PARTS.values(), ids=OF_THESE_PARTS)
@virtually
async def test_a_batch_elsewhere_whose_record_is_damaged_costs_its_own_items(damage: Mapping[str, Any]) -> None:
    world = World(settings=with_fan_out())
    inner = world.fan_out.inner
    worked = inner.work

    async def spoiling(event: Mapping[str, Any]) -> Any:
        end = await worked(event)
        if event["batch"]["from"] == 0 and event["try"] == 1:
            key = map_key(await world.row(envelope), "each")
            world.map_records._partitions[key]["0000001#0000000"].update(damage)
        return end

    inner.work = spoiling
    document = a_map("stepfunctions", task="core.echo", max_concurrency=8)
    envelope = await world.submit(await world.register(document), list(range(8)))
    async with world.worker():
        run = await world.ended(envelope, within=7_200)
        state = run.steps["each"].map
        assert run.status is Status.FAILED
        assert state is not None
        assert {error.type for error in state.errors} == {"no_result"}
        assert 0 < len(state.errors) < 8
        await operate(world, envelope, REDRIVE)
        run = await world.ended(envelope, within=7_200)
    assert run.output == list(range(8))
