"""The worker as a process: how much it takes, what it takes first, how it ends (R5, R7)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from fanfold.engine.record.messages import Envelope, Received, Wake
from fanfold.engine.record.run import Status
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.telemetry.metric_buffer import taken
from fanfold.service.telemetry.metrics import Metric
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.process import CLOCK_SECONDS, POLL_SECONDS, Exit, serve
from fanfold.service.worker.task_runner import GRACE_SECONDS
from tests.support.faults import Fault, Slow
from tests.support.virtual import loop, virtually
from tests.support.world import LANE, RESUME_QUEUE, TENANT, World, consistent


def one(ms: float, **given: Any) -> dict[str, Any]:
    return {"steps": {"a": {"task": "probe.play", "input": {"ms": ms}, **given}}}


async def many(world: World, number: int, document: dict[str, Any]) -> list[Envelope]:
    workflow = await world.register(document)
    return [await world.submit(workflow) for _ in range(number)]


async def running(world: World) -> int:
    return sum(run.status is Status.RUNNING for run in world.runs.rows.values())


@virtually
async def test_it_never_holds_more_messages_than_it_has_slots() -> None:
    world = World()
    await many(world, 40, one(1_000))
    process = world.process()
    most = 0
    async with process.worker(concurrency=7):
        while (await world.queue.depth(LANE)).visible or await running(world):
            depth = await world.queue.depth(LANE)
            assert depth.in_flight <= 7
            most = max(most, await running(world))
            await asyncio.sleep(0.1)
        assert loop().time() < 10
    assert most == 7
    assert all(run.status is Status.SUCCEEDED for run in world.runs.rows.values())


@virtually
async def test_work_begun_never_waits_behind_work_not_begun() -> None:
    world = World()
    retry = {"max_attempts": 2, "backoff": "10s", "jitter": "none"}
    suspended = {"steps": {"a": {"task": "probe.play", "input": {"fail": 1}, "retry": retry}}}
    (envelope,) = await many(world, 1, suspended)
    await world.process().work()
    await many(world, 50, one(600_000, timeout="700s"))
    async with world.process().worker(concurrency=2) as worker:
        run = await world.ended(envelope, within=20)
        assert run.status is Status.SUCCEEDED
        worker.stop()


@virtually
async def test_messages_that_end_together_are_settled_together() -> None:
    world = World()
    await many(world, 10, one(1_000))
    process = world.process()
    async with process.worker(concurrency=10):
        await asyncio.sleep(2)
    assert sum(len(call.args[0]) for call in process.queue.calls if call.method == "delete") == 10
    assert process.queue.count("delete") <= 2


@virtually
async def test_an_idle_worker_asks_each_queue_once_a_poll() -> None:
    world = World()
    process = world.process()
    async with process.worker():
        await asyncio.sleep(60)
        assert process.queue.count("receive") <= 2 * (60 / POLL_SECONDS + 1)
        turns = loop().turns
        await asyncio.sleep(60)
        assert loop().turns - turns < 1_000


@virtually
async def test_told_to_stop_it_takes_nothing_new_and_lets_runs_go_at_their_next_step_boundary() -> None:
    world = World()
    steps = {
        "a": {"task": "probe.play", "input": {"ms": 10_000}},
        "b": {"task": "probe.play", "needs": ["a"], "input": {"ms": 10_000}},
    }
    (envelope,) = await many(world, 1, {"steps": steps})
    process = world.process()
    async with process.worker(concurrency=4) as worker:
        await asyncio.sleep(3)
        worker.stop()
        worker.stop()
        later = await many(world, 3, one(100))
        assert await process.working is Exit.STOPPED
    assert loop().time() == pytest.approx(10, abs=0.2)
    row = await world.row(envelope)
    consistent(row)
    assert (row.status, row.crashes, row.epoch) == (Status.WAITING, 0, 1)
    for envelope in later:
        assert (await world.row(envelope)).status is Status.QUEUED
    assert (await world.queue.depth(LANE)).visible == 3
    assert loop().tasks_of(process.name) == set()


@virtually
async def test_a_message_that_arrives_with_the_order_to_stop_is_shown_to_others_at_once() -> None:
    world = World()
    process = world.process()
    process.queue.rule("receive", Slow(2))
    blocker = await many(world, 1, one(6_000))
    async with process.worker(concurrency=20) as worker:
        await asyncio.sleep(3)
        (envelope,) = await many(world, 1, one(100))
        await asyncio.sleep(0.5)
        worker.stop()
        await process.working
    assert (await world.row(blocker[0])).status is Status.SUCCEEDED
    assert (await world.row(envelope)).status is Status.QUEUED
    assert (await world.queue.depth(LANE)).visible == 1


@virtually
async def test_told_to_stop_an_idle_worker_does_not_wait_for_its_polls() -> None:
    world = World()
    process = world.process()
    async with process.worker() as worker:
        await asyncio.sleep(7)
        worker.stop()
        assert await process.working is Exit.STOPPED
    assert loop().time() == pytest.approx(7, abs=0.5)
    assert loop().tasks_of(process.name) == set()


@virtually
async def test_a_message_that_a_poll_left_behind_still_takes_costs_a_delay_and_no_run() -> None:
    world = World()
    process = world.process()
    process.queue.rule("receive", Slow(2))
    async with process.worker() as worker:
        await asyncio.sleep(1)
        (envelope,) = await many(world, 1, one(100))
        await asyncio.sleep(1.5)
        worker.stop()
        await process.working
    assert (await world.queue.depth(LANE)).in_flight == 1
    async with world.process().worker():
        run = await world.ended(envelope, within=70)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 1)


@virtually
async def test_what_does_not_end_within_the_drain_goes_on_elsewhere_at_once_without_being_counted() -> None:
    world = World()
    (envelope,) = await many(world, 1, one(600_000))
    process = world.process()
    async with process.worker() as worker:
        await asyncio.sleep(3)
        worker.stop()
        await process.working
    assert loop().time() == pytest.approx(28, abs=1)
    row = await world.row(envelope)
    assert (row.status, row.crashes, row.steps["a"].interruptions) == (Status.WAITING, 0, 0)
    assert loop().tasks_of(process.name) == set()
    async with world.process().worker():
        await asyncio.sleep(2)
        row = await world.row(envelope)
        assert (row.status, row.epoch, row.steps["a"].attempts) == (Status.RUNNING, 2, 2)


@virtually
async def test_a_rolling_deployment_five_times_within_one_long_step_costs_it_no_crash() -> None:
    world = World()
    (envelope,) = await many(world, 1, one(40_000))
    old = world.process()
    async with AsyncExitStack() as fleet:
        worker = await fleet.enter_async_context(old.worker())
        for deployment in range(1, 6):
            await asyncio.sleep(10)
            new = world.process()
            following = await fleet.enter_async_context(new.worker())
            worker.stop()
            await old.working
            old, worker = new, following
            row = await world.row(envelope)
            # A stop that the step outlives begins it again; there are no others.
            assert (row.crashes, row.steps["a"].interruptions) == (0, 0)
            assert row.epoch <= deployment + 1
        run = await world.ended(envelope, within=60)
    assert (run.status, run.crashes) == (Status.SUCCEEDED, 0)
    assert run.steps["a"].attempts == run.epoch


@virtually
async def test_with_time_to_drain_five_rolling_deployments_do_not_touch_a_long_step() -> None:
    world = World(settings=Settings(chaos=True, drain_seconds=3_600))
    (envelope,) = await many(world, 1, one(600_000))
    old = world.process()
    async with AsyncExitStack() as fleet:
        worker = await fleet.enter_async_context(old.worker())
        for _ in range(5):
            await asyncio.sleep(60)
            following = await fleet.enter_async_context(world.process().worker())
            worker.stop()
            worker = following
        run = await world.ended(envelope)
    assert (run.status, run.epoch, run.steps["a"].attempts) == (Status.SUCCEEDED, 1, 1)
    assert loop().time() == pytest.approx(600, abs=5)


@virtually
async def test_at_most_once_a_step_has_the_drain_to_end_in_and_then_fails() -> None:
    world = World()
    once = {"retry": {"on_interrupt": "fail"}}
    short, long = await many(world, 1, one(20_000, **once)), await many(world, 1, one(600_000, **once))
    process = world.process()
    async with process.worker() as worker:
        await asyncio.sleep(3)
        worker.stop()
        await process.working
    assert (await world.row(short[0])).status is Status.SUCCEEDED
    row = await world.row(long[0])
    assert row.error is not None
    assert (row.status, row.error.type, row.steps["a"].attempts) == (Status.FAILED, "interrupted", 1)


@virtually
async def test_two_workers_share_a_queue_and_every_run_is_executed_once() -> None:
    world = World()
    envelopes = await many(world, 30, one(500))
    async with world.process().worker(concurrency=4), world.process().worker(concurrency=4):
        for envelope in envelopes:
            assert (await world.ended(envelope)).epoch == 1
    assert len([s for s in world.log if s.what == "start"]) == 30


@virtually
async def test_a_worker_killed_among_many_runs_costs_a_lease_and_no_run() -> None:
    world = World()
    steps = {
        "a": {"task": "probe.play", "input": {"ms": 4_000}},
        "b": {"task": "probe.play", "needs": ["a"], "input": {"ms": 4_000}},
    }
    envelopes = await many(world, 20, {"steps": steps})
    dead = world.process()
    async with dead.worker():
        await asyncio.sleep(6)
        await dead.kill()
        async with world.process().worker():
            runs = [await world.ended(envelope, within=300) for envelope in envelopes]
    for run in runs:
        consistent(run)
        assert (run.status, run.epoch) == (Status.SUCCEEDED, 2)
    assert len([s for s in world.log if s.what == "start" and s.step == "a"]) == 20


@virtually
async def test_a_queue_that_can_not_be_asked_is_asked_again_a_little_later() -> None:
    world = World()
    (envelope,) = await many(world, 1, one(100))
    process = world.process()
    process.queue.plan("receive", *[Fault.DOWN] * 6)
    async with process.worker():
        run = await world.ended(envelope)
        assert run.status is Status.SUCCEEDED
    assert process.queue.count("receive") <= 12


@virtually
async def test_a_poller_that_meets_a_bug_ends_its_worker_instead_of_leaving_it_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    process = world.process()

    async def broken(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(1)
        raise KeyError("no such queue")

    monkeypatch.setattr(process.queue.inner, "receive", broken)
    async with process.worker():
        await asyncio.wait({process.working}, timeout=60)
        assert process.working.done()
        assert isinstance(process.working.exception(), KeyError)


@virtually
async def test_a_bug_in_one_messages_handling_hands_that_message_back_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    workflow = await world.register(one(100))
    bad = await world.submit(workflow, row=False)
    good = await world.submit(workflow)
    handle = MessageHandler.handle

    async def handle_or_not(self: MessageHandler, received: Received, **given: Any) -> Any:
        if received.message is not None and received.message.run_id == bad.run_id:
            raise RuntimeError("a bug")
        return await handle(self, received, **given)

    monkeypatch.setattr(MessageHandler, "handle", handle_or_not)
    async with world.process().worker():
        assert (await world.ended(good)).status is Status.SUCCEEDED
        await asyncio.sleep(1)
        assert (await world.queue.depth(LANE)).in_flight == 1
    assert not any(key.run_id == bad.run_id for key in world.runs.rows)


@virtually
async def test_a_spent_process_takes_nothing_new_and_says_so() -> None:
    world = World()
    (envelope,) = await many(world, 1, one(5_000))
    process = world.process()
    async with process.worker() as worker:
        await asyncio.sleep(1)
        stubborn = process.begin(asyncio.sleep(1_000))
        worker._attempts._watch(stubborn)
        await asyncio.sleep(GRACE_SECONDS + 0.1)
        (late,) = await many(world, 1, one(100))
        assert await process.working is Exit.SPENT
    assert (await world.row(envelope)).status is Status.SUCCEEDED
    assert (await world.row(late)).status is Status.QUEUED
    stubborn.cancel()


@virtually
async def test_better_lanes_are_served_first() -> None:
    settings = Settings(chaos=True, classes={"model": ClassSettings(lanes=("high", "normal"))})
    world = World(settings=settings)
    slow = await many(world, 20, one(1_000))
    workflow = await world.register(one(1_000))
    async with world.process().worker(concurrency=2, lanes=("high", "normal")):
        await asyncio.sleep(1.5)
        high = await world.submit(workflow, lane="high")
        assert (await world.ended(high, within=4)).status is Status.SUCCEEDED
    assert any(not run.terminal or run.status is Status.SUCCEEDED for run in world.runs.rows.values())
    assert len(slow) == 20


@virtually
async def test_a_wake_for_nobody_is_deleted() -> None:
    world = World()
    await world.queue.send(RESUME_QUEUE, Wake(tenant=TENANT, run_id="r9", submission="s9", class_name="model"))
    async with world.process().worker():
        await asyncio.sleep(1)
    depth = await world.queue.depth(RESUME_QUEUE)
    assert depth.visible + depth.in_flight == 0


def test_a_class_or_lane_that_is_not_configured_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="there is no class 'huge'; there are: model"):
        serve(Settings(), class_name="huge", concurrency=1)
    with pytest.raises(ValueError, match="no lane 'fast'; it has: normal"):
        serve(Settings(), class_name="model", lanes=["fast"], concurrency=1)
    with pytest.raises(ValueError, match="concurrency"):
        serve(Settings(), class_name="model", concurrency=0)


@virtually
async def test_while_its_clock_is_off_it_takes_nothing_and_asks_for_the_time_now_and_then() -> None:
    world = World()
    envelopes = await many(world, 3, one(100))
    process, offset = world.process(), 9.0
    process.services = replace(process.services, clock_offset=lambda: offset)
    taken()
    async with process.worker(concurrency=8):
        await asyncio.sleep(10 * CLOCK_SECONDS - 1)
        assert (process.queue.count("receive"), process.queue.count("depth")) == (0, 2 * 9)
        # Both pollers say it, twice since the metrics were last written.
        assert sum(sum(values) for (metric, _), values in taken().items() if metric is Metric.CLOCK_OFF) == 2 * 2
        offset = -1.0
        await asyncio.sleep(2)
        for envelope in envelopes:
            assert (await world.row(envelope)).status is Status.SUCCEEDED


@virtually
async def test_told_to_stop_one_whose_clock_is_off_ends_at_once() -> None:
    world = World()
    process = world.process()
    process.services = replace(process.services, clock_offset=lambda: -60.0)
    async with process.worker() as worker:
        await asyncio.sleep(7)
        worker.stop()
        assert await process.working is Exit.STOPPED
    assert loop().time() == pytest.approx(7, abs=0.5)
