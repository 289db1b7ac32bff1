"""Operators' moves against a worker that holds the run, on virtual time: what it notices, how soon, what it stops."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from fanfold.engine.errors import QueueFull
from fanfold.engine.record.messages import Envelope
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.events import OperatorRequest
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.worker.dispositions import Ack
from tests.support.operators import CANCEL, PAUSE, REDRIVE, RESUME, a_signal, operate, sweeping, tried
from tests.support.virtual import loop, virtually
from tests.support.world import LANE, RESUME_QUEUE, World, consistent

LONG = {"task": "probe.play", "input": {"ms": 40_000}, "timeout": "60s"}
GATE = {"wait": {"signal": "approve"}}
AFTER = {"task": "probe.play", "needs": ["gate"]}


async def begun(world: World, steps: dict[str, Any], **given: Any) -> Envelope:
    """A run under way: five seconds after its claim."""
    envelope = await world.submit(await world.register({"steps": steps, **given}))
    await asyncio.sleep(5)
    return envelope


def seen(world: World, what: str) -> list[tuple[str, float]]:
    return [(entry.step, entry.at) for entry in world.log if entry.what == what]


async def until(world: World, envelope: Envelope, *statuses: Status, within: float = 300) -> Run:
    async with asyncio.timeout(within):
        while True:
            run = await world.row(envelope)
            if run.status in statuses:
                return run
            await asyncio.sleep(0.1)


@virtually
async def test_a_cancelled_run_is_let_go_within_a_third_of_a_lease_and_its_tasks_are_told() -> None:
    world = World()
    async with world.worker():
        envelope = await begun(world, {"a": LONG, "b": {**LONG, "needs": ["a"]}})
        asked = loop().time()
        assert (await operate(world, envelope, CANCEL)).run.status is Status.RUNNING
        run = await until(world, envelope, Status.CANCELLED)
        assert loop().time() - asked <= 20.2
        await asyncio.sleep(1)
    assert [step for step, _ in seen(world, "cancel")] == ["a"]
    assert seen(world, "end") == []
    consistent(run)


@virtually
async def test_beside_an_open_wait_a_cancellation_is_noticed_within_a_second() -> None:
    world = World()
    async with world.worker():
        envelope = await begun(world, {"a": LONG, "gate": GATE})
        asked = loop().time()
        await operate(world, envelope, CANCEL)
        await until(world, envelope, Status.CANCELLED)
        assert loop().time() - asked <= 1.2


@virtually
async def test_a_signal_beside_running_work_starts_the_next_step_within_a_second() -> None:
    world = World()
    async with world.worker():
        envelope = await begun(world, {"a": LONG, "gate": GATE, "after": AFTER})
        asked = loop().time()
        await operate(world, envelope, a_signal())
        run = await world.ended(envelope)
    assert run.status is Status.SUCCEEDED
    assert dict(seen(world, "start"))["after"] - asked <= 1.2
    assert [step for step, _ in seen(world, "start")] == ["a", "after"], "what ran was not disturbed"


@virtually
async def test_a_signal_to_a_suspended_run_is_acted_on_without_any_interval() -> None:
    world = World()
    async with world.worker():
        envelope = await begun(world, {"gate": GATE, "after": AFTER})
        asked = loop().time()
        await operate(world, envelope, a_signal(payload={"by": "Grace"}))
        await world.ended(envelope)
    assert dict(seen(world, "start"))["after"] - asked <= 0.05


@virtually
async def test_a_queued_run_that_was_cancelled_is_never_executed_though_its_message_comes() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": LONG}}))
    await operate(world, envelope, CANCEL)
    assert (await world.slots.load("model")).depth == 0
    async with world.worker():
        await asyncio.sleep(60)
    assert world.log == []
    assert (await world.row(envelope)).status is Status.CANCELLED


@virtually
async def test_runs_that_are_held_back_and_released_stay_within_the_bound_and_in_their_lane() -> None:
    world = World(Settings(chaos=True, classes={"model": ClassSettings(max_queue_depth=3)}))
    workflow = await world.register({"steps": {"a": {"task": "probe.play"}}})
    held_back = [await world.submit(workflow) for _ in range(3)]
    for envelope in held_back:
        await operate(world, envelope, PAUSE)
    await asyncio.sleep(2)
    with pytest.raises(QueueFull):
        await world.submit(workflow)
    process = world.process()
    for _ in held_back:
        assert await process.work() == Ack()  # the first envelopes: nothing is due
    for envelope in held_back:
        await operate(world, envelope, RESUME)
    depths = [await world.queue.depth(queue) for queue in (LANE, RESUME_QUEUE)]
    assert [depth.visible for depth in depths] == [3, 0]
    assert (await world.slots.load("model")).depth == 3
    for _ in held_back:
        assert await process.work() == Ack()
    assert [(await world.row(envelope)).status for envelope in held_back] == [Status.SUCCEEDED] * 3
    assert (await world.slots.load("model")).depth == 0


@virtually
async def test_the_same_move_of_two_operators_in_one_millisecond_is_made_once() -> None:
    """Simulation seed 815 found it: both took the record for their own, and the run's place was returned twice."""
    world = World()
    workflow = await world.register({"steps": {"a": LONG}})
    envelope = await world.submit(workflow)
    await world.submit(workflow)
    answers = await asyncio.gather(*(operate(world, envelope, CANCEL) for _ in range(2)))
    assert sorted(answer.changed for answer in answers) == [False, True]
    assert (await world.slots.load("model")).depth == 1


@virtually
async def test_a_pause_lets_what_runs_end_and_starts_nothing_and_a_resume_goes_on() -> None:
    world = World()
    async with world.worker():
        envelope = await begun(world, {"a": LONG, "b": {"task": "probe.play", "needs": ["a"]}})
        await operate(world, envelope, PAUSE)
        await asyncio.sleep(600)
        run = await world.row(envelope)
        assert (run.status, run.steps["a"].status, run.lease_until, run.crashes) == (
            Status.PAUSED,
            "succeeded",
            None,
            0,
        )
        await operate(world, envelope, RESUME)
        run = await world.ended(envelope, within=5)
    assert run.status is Status.SUCCEEDED
    assert [step for step, _ in seen(world, "start")] == ["a", "b"]


@virtually
async def test_resumed_while_its_attempts_still_run_the_run_never_changes_hands() -> None:
    world = World()
    async with world.worker():
        quick = {"task": "probe.play", "input": {"ms": 8_000}, "timeout": "60s"}
        envelope = await begun(world, {"a": LONG, "b": quick, "c": {"task": "probe.play", "needs": ["b"]}})
        await operate(world, envelope, PAUSE)
        await asyncio.sleep(10)
        assert (await world.row(envelope)).steps["b"].status == "succeeded"
        asked = loop().time()
        await operate(world, envelope, RESUME)
        run = await world.ended(envelope)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 1)
    assert dict(seen(world, "start"))["c"] - asked <= 1.2


@virtually
async def test_a_holder_that_dies_in_a_pause_costs_nothing_until_the_resume() -> None:
    world = World()
    once = {**LONG, "retry": {"on_interrupt": "retry"}}
    envelope = await world.submit(await world.register({"steps": {"a": once}}))
    process = world.process()
    async with process.worker():
        await asyncio.sleep(5)
        await operate(world, envelope, PAUSE)
        await process.kill()
    async with world.worker():
        await asyncio.sleep(600)
        assert (await world.row(envelope)).status is Status.PAUSED
        await operate(world, envelope, RESUME)
        run = await world.ended(envelope, within=60)
    assert (run.status, run.steps["a"].attempts, run.steps["a"].interruptions) == (Status.SUCCEEDED, 2, 1)


@virtually
async def test_a_redrive_begins_only_what_failed_again() -> None:
    world = World()
    steps = {
        "extract": {"task": "probe.play"},
        "load": {"task": "probe.play", "needs": ["extract"], "input": {"fail": 1}},
        "report": {"task": "probe.play", "needs": ["load"]},
    }
    async with world.worker():
        envelope = await world.submit(await world.register({"steps": steps}))
        assert (await world.ended(envelope)).status is Status.FAILED
        await operate(world, envelope, REDRIVE)
        run = await world.ended(envelope, within=5)
    assert (run.status, run.try_number) == (Status.SUCCEEDED, 2)
    assert [step for step, _ in seen(world, "start")] == ["extract", "load", "load", "report"]


@pytest.mark.parametrize("seed", range(12))
@virtually
async def test_at_most_once_holds_while_workers_die_and_operators_meddle(seed: int) -> None:
    """No attempt is executed twice, and a step of `on_interrupt: fail` only once per try of the run."""
    world = World(seed=seed)
    chance = random.Random(seed)
    careful = {"task": "probe.play", "input": {"ms": 3_000}, "retry": {"on_interrupt": "fail"}, "timeout": "20s"}
    steps = {
        "a": careful,
        "b": {**careful, "needs": ["a"]},
        "gate": {"wait": {"signal": "approve", "timeout": "1h"}, "needs": ["a"]},
        "c": {**careful, "needs": ["b", "gate"]},
        "d": {"task": "probe.play", "input": {"ms": 5_000}, "timeout": "20s", "needs": ["a"]},
    }
    envelope = await world.submit(await world.register({"steps": steps, "timeout": "30d"}))
    async with sweeping(world):
        for round_ in range(12):
            process = world.process(f"p{round_}")
            async with process.worker():
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(chance.random() * 8)
                    moves: list[OperatorRequest] = [PAUSE, RESUME, RESUME, CANCEL, REDRIVE, a_signal()]
                    move = chance.choice(moves)
                    assert await tried(world, envelope, move) in ("done", "so before", "WrongState")
                await asyncio.sleep(chance.random() * 10)
                if chance.random() < 0.5:
                    await process.kill()
            await asyncio.sleep(chance.choice([0, 70]))
        async with world.worker():
            for _ in range(20):
                await tried(world, envelope, RESUME)
                await tried(world, envelope, a_signal())
                await tried(world, envelope, REDRIVE)
                await asyncio.sleep(80)
                if (await world.row(envelope)).status is Status.SUCCEEDED:
                    break
    run = await world.row(envelope)
    assert run.status is Status.SUCCEEDED
    consistent(run)
    starts = [(entry.step, entry.attempt) for entry in world.log if entry.what == "start"]
    assert len(starts) == len(set(starts)), "an attempt was executed twice"
    for name in ("a", "b", "c"):
        began = sum(step == name for step, _ in starts)
        assert began <= run.try_number
    ends = [entry.step for entry in world.log if entry.what == "end"]
    settled = [str(entry.step) for entry in run.journal if entry.type == "step.succeeded" and entry.step != "gate"]
    assert sorted(settled) == sorted(set(settled)), "a step that succeeded was begun again"
    assert not set(settled) - set(ends)
    assert (await world.queue.depth(LANE)).visible + (await world.queue.depth(RESUME_QUEUE)).visible <= 1
