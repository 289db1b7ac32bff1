"""How a run shows its maps, and how a map's record travels."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.engine.language.maps import ItemError, MapState, Via
from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import StepState, StepStatus
from tests.support.builders import a_run
from tests.support.http import Http
from tests.support.virtual import virtually
from tests.support.world import World, with_fan_out
from tests.unit.service.worker.test_maps import FAILING, a_map

errors = st.builds(ItemError, index=st.integers(0, 10_000), type=st.text(), message=st.text())
maps = st.builds(
    MapState,
    via=st.sampled_from([Via.INLINE, Via.STEP_FUNCTIONS]),
    items=st.integers(0, 10_000),
    batch_size=st.integers(1, 100),
    batches_at_once=st.integers(1, 100),
    plan=st.one_of(
        st.none(),
        st.just(BlobRef(key="k", bytes=9, sha256="ab" * 32)),
        st.just({"items": [1, None], "scope": {"input": {}}}),
    ),
    polls=st.integers(0, 20),
    failed=st.one_of(st.none(), st.integers(0, 10_000)),
    errors=st.lists(errors, max_size=3).map(tuple),
)


@given(maps)
def test_a_map_makes_the_round_trip_through_the_table(state: MapState) -> None:
    run = a_run(steps={"only": StepState(status=StepStatus.WAITING, attempts=1, map=state)})
    assert from_item(to_item(run)) == run


@virtually
async def test_a_map_that_has_ended_shows_its_counts_and_its_first_errors() -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map(tolerate={"count": 2}), FAILING)
    http = Http(services=world.services)
    shown = (await http("GET", f"/v1/runs/{run.id}")).json["steps"]["each"]
    assert shown["map"] == {
        "items": 5,
        "via": "stepfunctions",
        "done": 5,
        "failed": 2,
        "errors": [{"index": n, "type": "Fail", "message": "failed for good"} for n in (1, 3)],
    }
    assert shown["output"] == [0, None, 2, None, 4]


@virtually
async def test_a_map_that_goes_on_is_counted_when_asked() -> None:
    world = World(settings=with_fan_out())
    workflow = await world.register(a_map(max_concurrency=4, tolerate={"percent": 90}))
    items = [{"out": 1}, {"fail": 9, "final": True}, *[{"ms": 40_000}] * 8]
    envelope = await world.submit(workflow, items)
    http = Http(services=world.services)
    async with world.worker():
        await asyncio.sleep(5)
        shown = (await http("GET", f"/v1/runs/{envelope.run_id}")).json["steps"]["each"]["map"]
        assert shown == {"items": 10, "via": "stepfunctions", "done": None, "failed": None}
        counted = (await http("GET", f"/v1/runs/{envelope.run_id}?progress=true")).json["steps"]["each"]["map"]
        assert counted == {"items": 10, "via": "stepfunctions", "done": 2, "failed": 1}
        await world.ended(envelope)


@virtually
async def test_a_step_that_is_no_map_shows_none() -> None:
    world = World()
    run = await world.play({"steps": {"a": {"task": "core.echo"}}})
    shown = (await Http(services=world.services)("GET", f"/v1/runs/{run.id}")).json["steps"]["a"]
    assert "map" not in shown
