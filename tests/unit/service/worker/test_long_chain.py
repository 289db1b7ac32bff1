"""A chain of ten thousand steps: its cost per step, and that it reads back whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fanfold.engine.ports import RunKey
from fanfold.engine.record.run import Run, Status
from tests.support.http import Http
from tests.support.virtual import virtually
from tests.unit.engine.record.test_sealing import MeteredStore, chain, metered

LENGTH = 10_000


async def finished(length: int) -> tuple[Any, MeteredStore, Run]:
    """A finished chain, looked at seldom: reading a record costs more than writing it."""
    world, store = metered()
    envelope = await world.submit(await world.register(chain(length)))
    key = RunKey(tenant=envelope.tenant, run_id=envelope.run_id)
    async with world.worker():
        run = None
        while run is None or not run.terminal:
            await world.services.clock.sleep(5)
            run = await store.get(key, now=world.services.clock.now())
    return world, store, run


@virtually
async def test_a_chain_of_ten_thousand_steps_costs_per_step_what_one_of_a_hundred_does_and_reads_back_whole() -> None:
    _, short, _ = await finished(100)
    world, long, run = await finished(LENGTH)
    assert run.status is Status.SUCCEEDED
    assert long.units / LENGTH <= 1.2 * short.units / 100
    assert long.biggest <= 1_024

    http = Http(services=replace(world.services), tenant=run.tenant)
    answer = await http("GET", f"/v1/runs/{run.id}")
    assert answer.status == 200
    steps = answer.json["steps"]
    assert list(steps) == [f"s{number:05d}" for number in range(LENGTH)]
    assert {step["status"] for step in steps.values()} == {"succeeded"}
    assert all(step["output"]["text"] for step in steps.values())

    for after in (0, LENGTH, 2 * LENGTH - 50):
        page = (await http("GET", f"/v1/runs/{run.id}/events?after={after}&limit=200")).json
        assert [event["seq"] for event in page["events"]] == list(range(after + 1, page["last_seq"] + 1))
    assert (page["last_seq"], page["end"]) == (2 * LENGTH + 3, True)
