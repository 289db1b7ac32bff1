"""A long run costs per step what a short one does, no item comes near the limit, and nothing of it is lost (R8)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from functions.adapters.items import MAX_ITEM_BYTES, size
from functions.adapters.memory import MemoryRunStore
from functions.engine.ports import Condition, RunKey
from functions.engine.run import Run, Status, StepStatus
from functions.engine.segments import Segment
from functions.runtime.api.reading import whole
from functions.runtime.settings import Settings
from tests.support.virtual import virtually
from tests.support.world import World, codec, consistent

UNIT = 1024
"""Bytes of a write unit."""


class MeteredStore(MemoryRunStore):
    """Counts write units as DynamoDB bills them, and the biggest item there was."""

    def __init__(self) -> None:
        super().__init__(codec())
        self.units = 0
        self.biggest = 0
        self.segments_put = 0

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        item_bytes = await super().put(run, condition, now=now)
        self._count(item_bytes)
        return item_bytes

    async def put_segment(self, key: RunKey, segment: Segment, *, now: datetime) -> None:
        await super().put_segment(key, segment, now=now)
        self.segments_put += 1
        self._count(size(self._segments[key][-1]))

    def _count(self, item_bytes: int) -> None:
        self.units += math.ceil(item_bytes / UNIT)
        self.biggest = max(self.biggest, item_bytes)


def metered(**settings: Any) -> tuple[World, MeteredStore]:
    world, store = World(Settings(chaos=True, **settings)), MeteredStore()
    world.runs = store
    world.services = replace(world.services, runs=store)
    return world, store


def chain(length: int) -> dict[str, Any]:
    """Steps one after the other, each with a small output that the next one reads."""
    steps: dict[str, Any] = {}
    for number in range(length):
        given: dict[str, Any] = {"latency_ms": 10}
        if number:
            given["prompt"] = f"${{steps.s{number - 1:05d}.output.text}}"
        steps[f"s{number:05d}"] = {"task": "mock.model", "timeout": "30s", "input": given}
        if number:
            steps[f"s{number:05d}"]["needs"] = [f"s{number - 1:05d}"]
    return {"steps": steps, "timeout": "7d"}


async def units_per_step(length: int) -> float:
    world, store = metered()
    run = await world.play(chain(length), within=10**6)
    assert run.status is Status.SUCCEEDED
    read = await whole(world.services, run)
    consistent(read)
    assert len(read.journal) == 2 * length + 3
    assert len(read.steps) == length
    assert store.biggest <= UNIT
    return store.units / length


@virtually
async def test_a_step_of_a_long_chain_costs_what_one_of_a_short_chain_does() -> None:
    short, long = await units_per_step(100), await units_per_step(1_000)
    assert long / short <= 1.2
    assert long <= 1.1


@virtually
async def test_a_short_run_is_one_item() -> None:
    world, store = metered()
    run = await world.play(chain(4))
    assert store.segments_put == 0
    assert run.sealed.newest is None


@virtually
async def test_outputs_that_later_steps_read_are_there_though_they_are_too_many_for_the_head() -> None:
    world, store = metered()
    parts = {f"p{n:03d}": {"task": "chaos.output", "input": {"bytes": 6_000}} for n in range(120)}
    steps = {**parts, "all": {"task": "core.collect", "needs": list(parts)}}
    run = await world.play({"steps": steps, "output": {"first": "${steps.all.output.p000}"}})
    assert run.status is Status.SUCCEEDED, run.error
    assert (
        await world.services.blobs.get(run.output) == {"first": "x" * 5_998}
        if not isinstance(run.output, dict)
        else run.output == {"first": "x" * 5_998}
    )
    assert store.biggest < MAX_ITEM_BYTES / 2
    assert len((await whole(world.services, run)).steps) == 121


@virtually
async def test_a_journal_of_any_length_fits() -> None:
    world, store = metered()
    run = await world.play({"steps": {"talk": {"task": "chaos.emit", "input": {"count": 1_000, "every_ms": 100}}}})
    assert run.status is Status.SUCCEEDED, run.error
    read = await whole(world.services, run)
    consistent(read)
    assert sum(entry.type == "step.emitted" for entry in read.journal) == 1_000
    assert store.biggest < 8 * UNIT


@virtually
async def test_a_thousand_retries_fit() -> None:
    world, store = metered()
    retry = {"max_attempts": 51, "backoff": "10s", "factor": 1, "jitter": "none"}
    steps = {f"s{n}": {"task": "chaos.fail", "input": {"times": 50}, "retry": retry} for n in range(20)}
    run = await world.play({"steps": steps, "timeout": "7d"}, within=10**6)
    assert run.status is Status.SUCCEEDED, run.error
    read = await whole(world.services, run)
    consistent(read)
    assert sum(entry.type == "step.retry_scheduled" for entry in read.journal) == 1_000
    assert store.biggest <= 2 * UNIT


@virtually
async def test_a_crash_after_sealing_loses_nothing_and_repeats_nothing() -> None:
    world, _ = metered(lease_seconds=5, clock_skew_seconds=1)
    envelope = await world.submit(await world.register(chain(400)))
    first = world.process("first")
    async with first.worker():
        while (await world.row(envelope)).sealed.newest is None:
            await first.services.clock.sleep(0.05)
        await first.kill()
    async with world.worker():
        run = await world.ended(envelope)
    read = await whole(world.services, run)
    consistent(read)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 2)
    assert sorted(state.attempts for state in read.steps.values())[-1] <= 2
    assert sum(state.attempts for state in read.steps.values()) <= 401


@virtually
async def test_a_reader_goes_by_the_segments_the_head_names_and_ignores_orphans() -> None:
    world, store = metered()
    run = await world.play(chain(200))
    before = await whole(world.services, run)
    orphan = Segment(name=f"{run.submission}#0000000001#orphan#00", previous=None)
    await store.put_segment(RunKey(tenant=run.tenant, run_id=run.id), orphan, now=world.services.clock.now())
    assert await whole(world.services, run) == before


@virtually
async def test_skipped_and_failed_steps_are_sealed_as_what_they_are() -> None:
    world, _ = metered()
    document = chain(150)
    document["steps"]["bad"] = {"task": "chaos.fail", "on_failure": "continue"}
    document["steps"]["never"] = {"task": "core.echo", "needs": ["bad"]}
    document["steps"]["late"] = {
        "task": "core.echo",
        "needs": ["bad", "s00149"],
        "join": "settled",
        "input": "${steps.bad.status}",
    }
    document["output"] = "${steps.late.output}"
    run = await world.play(document)
    assert (run.status, run.output) == (Status.SUCCEEDED, "failed")
    read = await whole(world.services, run)
    assert read.steps["never"].status is StepStatus.SKIPPED
    assert read.steps["bad"].error is not None


@pytest.mark.parametrize("bytes_each", [3_000, 7_000])
@virtually
async def test_many_big_reports_at_once_fit(bytes_each: int) -> None:
    world, store = metered()
    steps = {f"s{n}": {"task": "probe.report", "input": {"bytes": bytes_each, "count": 20}} for n in range(10)}
    run = await world.play({"steps": steps})
    assert run.status is Status.SUCCEEDED, run.error
    assert store.biggest < MAX_ITEM_BYTES
