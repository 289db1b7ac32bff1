"""A long run costs per step what a short one does, no item comes near the limit, and nothing of it is lost (R8)."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from fanfold.adapters.aws.run_items import MAX_ITEM_BYTES, size, to_item
from fanfold.adapters.aws.segments import to_segment_item
from fanfold.adapters.memory import MemoryRunStore
from fanfold.engine.language.maps import ItemError, MapState, Via
from fanfold.engine.ports import Condition, IfVersion, RunKey
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.messages import Envelope
from fanfold.engine.record.run import Failure, Run, Status, StepState, StepStatus
from fanfold.engine.record.sealing import SEGMENT_BYTES, seal
from fanfold.engine.record.segments import Segment
from fanfold.engine.rules.events import OperatorRequest
from fanfold.service.api.run_reader import whole
from fanfold.service.settings import Settings
from tests.support.builders import a_run
from tests.support.clock import START
from tests.support.game import a_flow
from tests.support.operators import CANCEL, PAUSE, a_signal, operate
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


# --- runs that only wait ----------------------------------------------------------------------------------------------


def noise(seed: object, characters: int) -> str:
    """A text that compresses little."""
    return random.Random(str(seed)).randbytes(characters).hex()[:characters]


async def until_it_waits(world: World, envelope: Envelope, step: str) -> None:
    async with asyncio.timeout(60):
        while (row := await world.row(envelope)).status is not Status.WAITING or step not in row.steps:
            await world.services.clock.sleep(0.05)


@virtually
async def test_the_last_of_three_hundred_waits_costs_what_the_first_ones_do() -> None:
    world, store = metered()
    names = [f"w{n:03d}" for n in range(300)]
    steps = {name: {"wait": {"signal": "go"}, "needs": names[:n][-1:]} for n, name in enumerate(names)}
    envelope = await world.submit(await world.register({"steps": steps, "timeout": "30d"}))
    spent = [0]
    async with world.worker():
        for name in names:
            await until_it_waits(world, envelope, name)
            await operate(world, envelope, a_signal("go", noise(name, 1_000)))
            spent.append(store.units)
        run = await world.ended(envelope)
    assert run.status is Status.SUCCEEDED
    read = await whole(world.services, run)
    consistent(read)
    assert [read.steps[name].output for name in names] == [noise(name, 1_000) for name in names]
    first, last = spent[50] - spent[0], spent[300] - spent[250]
    assert last <= 1.2 * first, (first, last)
    assert store.biggest < 8 * UNIT


@virtually
async def test_timers_without_end_cost_the_same_each() -> None:
    world, store = metered()
    names = [f"t{n:03d}" for n in range(300)]
    steps = {name: {"wait": {"for": "20s"}, "needs": names[:n][-1:]} for n, name in enumerate(names)}
    run = await world.play({"steps": steps, "timeout": "30d"}, within=10**5)
    assert run.status is Status.SUCCEEDED
    assert store.biggest <= 1.1 * UNIT
    assert store.units / 300 < 1.3


def filled(run: Run) -> Run:
    """The run with so long a journal that hardly another byte has room in its head."""

    def told(characters: int) -> Run:
        parts = [8_000] * (characters // 8_000) + [characters % 8_000]
        signals = (
            Entry(seq=run.last_seq + n, at=START, type=EventType.SIGNAL_RECEIVED, data={"payload": noise(n, length)})
            for n, length in enumerate(parts, start=1)
        )
        return fast_replace(run, version=run.version + 1, write_id="0" * 16, journal=(*run.journal, *signals))

    fits, too_many = 0, 1_000_000
    while too_many - fits > 4:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if size(to_item(told(middle))) <= MAX_ITEM_BYTES else (fits, middle)
    return told(fits)


@pytest.mark.parametrize(
    "move", [CANCEL, PAUSE, a_signal("go", noise("the last", 1_000))], ids=["cancel", "pause", "signal"]
)
@virtually
async def test_a_head_that_is_full_takes_an_operators_move(move: OperatorRequest) -> None:
    world, store = metered()
    envelope = await world.submit(await world.register({"steps": {"gate": {"wait": {"signal": "go"}}}}))
    async with world.worker():
        await until_it_waits(world, envelope, "gate")
    row = await world.row(envelope)
    full = filled(row)
    await store.put(full, IfVersion(version=row.version, submission=row.submission), now=START)
    assert (await operate(world, envelope, move)).changed
    read = await whole(world.services, await world.row(envelope))
    assert [entry.seq for entry in read.journal] == list(range(1, read.last_seq + 1))
    assert read.journal[: full.last_seq] == full.journal


# --- what does not fit into one segment -------------------------------------------------------------------------------


def test_no_segment_comes_near_the_limit_whatever_is_told_of_failed_items() -> None:
    names = [f"{noise(n, 40)}m".replace("0", "a") for n in range(40)]
    names = [f"m{name}" for name in names]
    flow = a_flow({name: {"map": {"over": "${input}", "task": "core.echo"}} for name in names})
    worst = "\U0001f3b2\x07\u20ac" * 333
    states = {
        name: StepState(
            status=StepStatus.FAILED,
            attempts=1,
            started_at=START,
            finished_at=START,
            error=Failure(type="items_failed", message=worst),
            map=MapState(
                via=Via.INLINE,
                items=1_000,
                batch_size=25,
                failed=20,
                errors=tuple(
                    ItemError(index=n, type="Broken", message=noise((name, n), 400) + worst[:500]) for n in range(20)
                ),
            ),
        )
        for name in names
    }
    entries = tuple(Entry(seq=n + 1, at=START, type=EventType.STEP_FAILED, step=name) for n, name in enumerate(names))
    run = a_run(1, status=Status.RUNNING, version=2, steps=states, journal=entries, write_id="0" * 16)
    head, segments = seal(run, flow, committed_seq=len(names) - 1)
    assert not head.steps
    assert len(segments) > 1
    key = RunKey(tenant=run.tenant, run_id=run.id)
    for segment in segments:
        item = to_segment_item(key, segment, written_at=START)
        assert size(item) < 1.5 * SEGMENT_BYTES < MAX_ITEM_BYTES
    assert {name for segment in segments for name in segment.steps} == set(names)


def test_ten_thousand_steps_that_end_at_once_fit_into_their_segments() -> None:
    names = [f"s{noise(n, 62)}" for n in range(10_000)]
    flow = a_flow({name: {"task": "core.echo"} for name in names})
    skipped = StepState(status=StepStatus.SKIPPED, finished_at=START)
    entries = tuple(Entry(seq=n + 1, at=START, type=EventType.STEP_SKIPPED, step=name) for n, name in enumerate(names))
    run = a_run(
        1, status=Status.RUNNING, version=2, steps=dict.fromkeys(names, skipped), journal=entries, write_id="0" * 16
    )
    head, segments = seal(run, flow, committed_seq=0, all_of_it=True)
    assert not head.steps
    key = RunKey(tenant=run.tenant, run_id=run.id)
    for segment in segments:
        item = to_segment_item(key, segment, written_at=START)
        assert size(item) < SEGMENT_BYTES


def test_a_map_that_later_steps_read_stays_in_the_head_only_as_long_as_its_errors_are_few() -> None:
    def with_errors(count: int) -> StepState:
        errors = tuple(ItemError(index=n, type="Broken", message=noise(n, 1_000)) for n in range(count))
        state = MapState(via=Via.INLINE, items=100, batch_size=25, failed=count, errors=errors)
        return StepState(status=StepStatus.SUCCEEDED, attempts=1, output=[1], map=state)

    names = ["a", "b", "c"]
    steps: dict[str, Any] = {name: {"map": {"over": "${input}", "task": "core.echo"}} for name in names}
    steps["reader"] = {"needs": names, "input": [f"${{steps.{name}.output}}" for name in names]}
    flow = a_flow(steps)
    accepted = Entry(seq=1, at=START, type=EventType.RUN_ACCEPTED, data={"x": noise(1, 500)})
    entries = (accepted, *(Entry(seq=n, at=START, type=EventType.STEP_SUCCEEDED, step="a") for n in (2, 3)))
    for count, kept in ((5, names), (20, [])):
        states = {name: with_errors(count) for name in names}
        run = a_run(1, status=Status.RUNNING, version=2, steps=states, journal=entries, write_id="0" * 16)
        head, _ = seal(run, flow, committed_seq=2)
        assert list(head.steps) == kept
