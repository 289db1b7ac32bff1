"""Items of maps that kill the function they are worked on in: they fail, and take none along (R9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fanfold.engine.record.run import Status
from fanfold.service.worker.map_batches import BatchEnd, Order
from tests.support.operators import REDRIVE, operate
from tests.support.virtual import virtually
from tests.support.world import World, with_fan_out


@virtually
async def test_items_that_kill_their_function_fail_only_themselves_and_a_redrive_repeats_only_them() -> None:
    world = World(settings=with_fan_out())
    killers, calls = {3, 17}, []

    async def function(event: Mapping[str, Any]) -> BatchEnd:
        batch = Order.from_event(event).batch
        calls.append((batch.first, batch.end))
        if killers & set(range(batch.first, batch.end)):
            await asyncio.sleep(1)
            raise RuntimeError("the function was killed")
        return await world.batch(event)

    world.fan_out.inner.work = function
    of_map = {"over": "${input}", "task": "probe.play", "via": "stepfunctions", "max_concurrency": 40}
    document = {"steps": {"each": {"map": {**of_map, "tolerate": {"count": 1}}, "timeout": "60s"}}}
    envelope = await world.submit(await world.register(document), [{"ms": 10}] * 30)
    async with world.worker():
        run = await world.ended(envelope, within=60)
        state = run.steps["each"].map
        assert state is not None
        assert (state.items, state.failed) == (30, 2)
        assert {error.index for error in state.errors} == killers
        assert {error.type for error in state.errors} == {"no_result"}
        assert Counter(seen.index for seen in world.log if seen.what == "start") == {
            index: 1 for index in range(30) if index not in killers
        }
        assert calls.count((8, 16)) == calls.count((24, 30)) == 1, "what works needs no second call"
        # Two calls for a batch that holds a killer, then one for each of its items.
        assert len(calls) == 2 * (2 + 8) + 2
        killers.clear()
        calls.clear()
        await operate(world, envelope, REDRIVE)
        run = await world.ended(envelope, within=60)
    assert run.status is Status.SUCCEEDED
    assert run.steps["each"].output == ["each"] * 30
    assert sorted(calls) == [(3, 4), (17, 18)]
