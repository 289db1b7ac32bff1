"""A record of newer code, left behind by a deployment that was rolled back, costs only itself (R12)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fanfold.adapters.memory import MemoryRunStore
from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.run import SCHEMA, Run, Status
from tests.contract.backends import NEWER
from tests.support.builders import a_run, key_of
from tests.support.clock import START
from tests.support.http import TINY, Http, memory_services
from tests.support.sweeping import Swept
from tests.support.world import codec

HOUR = 3_600


async def put_newer(store: MemoryRunStore, run: Run) -> None:
    """As newer code would."""
    await store.put(run, IfAbsent(), now=run.created_at)
    outdate(store, run)


def outdate(store: MemoryRunStore, run: Run) -> None:
    """The row is one of newer code from now on."""
    assert NEWER["z"] == {"N": str(SCHEMA + 1)}
    store._rows[key_of(run)] |= NEWER


def waiting(number: int) -> Run:
    return a_run(number, status=Status.WAITING, version=3, epoch=1, owner="c" * 16, due_at=START - timedelta(minutes=5))


async def an_api() -> tuple[Http, MemoryRunStore]:
    store = MemoryRunStore(codec())
    http = Http(services=replace(memory_services(), runs=store))
    assert (await http("PUT", "/v1/workflows/tiny", TINY)).status == 201
    return http, store


async def test_a_list_shows_it_as_unreadable_and_goes_on_behind_it() -> None:
    http, store = await an_api()
    for number in range(4):
        await store.put(a_run(number, created_at=START + timedelta(seconds=number)), IfAbsent(), now=START)
    outdate(store, a_run(2))
    everything = (await http("GET", "/v1/runs")).json
    assert [run["id"] for run in everything["runs"]] == [a_run(number).id for number in (3, 2, 1, 0)]
    assert [run["status"] for run in everything["runs"]] == ["queued", "unreadable", "queued", "queued"]
    filtered = (await http("GET", "/v1/runs?status=queued")).json
    assert [run["id"] for run in filtered["runs"]] == [a_run(number).id for number in (3, 1, 0)]
    seen, cursor = [], ""
    while True:
        page = (await http("GET", f"/v1/runs?limit=1{cursor}")).json
        seen += [run["id"] for run in page["runs"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [a_run(number).id for number in (3, 2, 1, 0)]
    one = await http("GET", f"/v1/runs/{a_run(2).id}")
    assert (one.status, "retry-after" in one.headers) == (503, True)


async def test_a_batch_is_refused_the_run_it_stands_for_and_gets_the_others() -> None:
    http, store = await an_api()
    body = {"runs": [{"workflow": "tiny", "input": {"n": n}} for n in range(3)]}
    first = await http("POST", "/v1/runs/batch", body, headers={"Idempotency-Key": "k"})
    ids = [result["run"]["id"] for result in first.json["results"]]
    outdate(store, next(run for run in store.rows.values() if run.id == ids[1]))
    again = await http("POST", "/v1/runs/batch", body, headers={"Idempotency-Key": "k"})
    assert [result["status"] for result in again.json["results"]] == [200, 503, 200]


async def test_the_sweeper_looks_after_all_others() -> None:
    it = await Swept().with_tenants()
    store = it.runs = it.services.runs._port = MemoryRunStore(codec())
    lost = replace(waiting(4), status=Status.RUNNING, lease_until=START - timedelta(minutes=5), due_at=None)
    for run in (waiting(1), waiting(3), lost):
        await store.put(run, IfAbsent(), now=START)
    await put_newer(store, waiting(2))
    report = await it.sweep()
    assert (report.wakes_sent, report.rescued, report.checked) == (2, 1, 3)


async def test_no_slot_is_healed_in_an_hour_with_a_row_that_may_have_it_and_in_others_all_are() -> None:
    it = await Swept().with_tenants()
    store = it.runs = it.services.runs._port = MemoryRunStore(codec())
    unclear = await it.submit()
    await it.clock.advance(HOUR)
    await it.slots.reserve("model", now=it.clock.now())
    outdate(store, unclear)
    await it.clock.advance(5 * HOUR)
    healed = 0
    for _ in range(8):
        healed += (await it.sweep()).slots_repaired
        await it.clock.advance(60)
    assert healed == 1
    assert await it.slots.held("model") == {unclear.slot: 1}
