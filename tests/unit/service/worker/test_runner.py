"""From a message to what becomes of it: claimed, dropped, handed back, put back, set apart."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.ports import IfVersion, RunKey
from fanfold.engine.record.messages import Envelope, Received, Wake
from fanfold.engine.record.run import Reason, Status
from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import Settings
from fanfold.service.telemetry.metric_buffer import taken
from fanfold.service.telemetry.metrics import Metric
from fanfold.service.worker.dispositions import CLOCK_OFF_SECONDS, Ack, Disposition, Redeliver
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.faults import Fault, Late
from tests.support.virtual import loop, virtually
from tests.support.world import LANE, RESUME_QUEUE, TENANT, Process, World, consistent, journal_of

ONE = {"steps": {"a": {"task": "probe.play", "input": {"ms": 100}}}}
LONG = {"steps": {"a": {"task": "probe.play", "input": {"ms": 600_000}}}}
CHAIN = {
    "steps": {
        "a": {"task": "probe.play", "input": {"ms": 10_000}, "timeout": "30s"},
        "b": {"task": "probe.play", "needs": ["a"], "input": {"ms": 10_000}, "timeout": "30s"},
    }
}


async def submitted(world: World, document: dict[str, Any] = ONE, **given: Any) -> Envelope:
    return await world.submit(await world.register(document), **given)


def wake_for(envelope: Envelope, **given: Any) -> Wake:
    values = {"tenant": TENANT, "run_id": envelope.run_id, "submission": envelope.submission, "class_name": "model"}
    return Wake(**values | given)


async def depths(world: World, queue: Any = LANE) -> tuple[int, int, int]:
    depth = await world.queue.depth(queue)
    return depth.visible, depth.in_flight, depth.delayed


# --- envelopes ---------------------------------------------------------------------------------


@virtually
async def test_an_accepted_run_is_executed_though_its_row_was_never_made() -> None:
    world = World()
    envelope = await submitted(world, row=False)
    process = world.process()
    assert await process.work() == Ack()
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.version) == (Status.SUCCEEDED, 3)
    assert [c.method for c in process.runs.calls] == ["put", "put"]


@virtually
async def test_a_row_made_while_its_envelope_is_claimed_changes_nothing() -> None:
    world = World()
    envelope = await submitted(world)
    assert await world.process().work() == Ack()
    assert (await world.row(envelope)).epoch == 1


@virtually
async def test_a_second_delivery_of_a_leased_run_is_handed_back_until_its_lease_is_over() -> None:
    world = World()
    await submitted(world, LONG)
    first, second = world.process(), world.process()
    (message,) = await first.receive()
    first.take(message)
    await asyncio.sleep(1)
    what = await second.take(message)
    assert isinstance(what, Redeliver)
    assert 60 <= what.seconds <= 68
    assert second.runs.count("put") == 1
    await first.kill()


@virtually
async def test_two_workers_with_the_same_message_make_one_owner() -> None:
    world = World()
    envelope = await submitted(world)
    first, second = world.process(), world.process()
    (message,) = await first.receive()
    what = await asyncio.gather(first.take(message), second.take(message))
    assert sorted(map(str, what))[0] == "Ack()"
    run = await world.row(envelope)
    assert run.epoch == 1
    assert len([s for s in world.log if s.what == "start"]) == 1


@virtually
async def test_the_same_message_twice_in_one_process_makes_one_owner_too() -> None:
    world = World()
    envelope = await submitted(world)
    process = world.process()
    (message,) = await process.receive()
    what = await asyncio.gather(process.take(message), process.take(message))
    assert {type(it) for it in what} == {Ack, Redeliver}
    assert (await world.row(envelope)).epoch == 1


@virtually
async def test_a_second_delivery_of_a_finished_run_is_dropped() -> None:
    world = World()
    envelope = await submitted(world)
    process = world.process()
    (message,) = await process.receive()
    assert await process.take(message) == Ack()
    before = await world.row(envelope)
    assert await process.take(message) == Ack()
    assert await world.row(envelope) == before


@virtually
async def test_an_envelope_of_a_void_submission_is_dropped_and_its_slot_is_not_touched() -> None:
    world = World()
    envelope = await submitted(world)
    process = world.process()
    (message,) = await process.receive()
    void = replace(message, message=replace(envelope, submission="another-one"))
    assert await process.take(void) == Ack()
    assert (await world.row(envelope)).status is Status.QUEUED
    assert (await world.slots.load("model")).depth == 1


@virtually
async def test_an_envelope_older_than_two_hours_that_makes_its_row_returns_no_slot() -> None:
    world = World()
    envelope = await submitted(world, row=False)
    await asyncio.sleep(7300)
    process = world.process()
    assert await process.work() == Ack()
    assert (await world.row(envelope)).status is Status.SUCCEEDED
    assert process.slots.count("give_back") == 0


@virtually
async def test_an_old_envelope_whose_row_is_still_queued_returns_its_slot() -> None:
    world = World()
    await submitted(world)
    await asyncio.sleep(7300)
    process = world.process()
    assert await process.work() == Ack()
    assert process.slots.count("give_back") == 1


@virtually
async def test_an_envelope_older_than_two_weeks_makes_no_row() -> None:
    world = World()
    accepted_at = world.services.clock.now() - timedelta(days=14, seconds=1)
    envelope = await submitted(world, row=False, accepted_at=accepted_at)
    assert await world.process().work() == Ack()
    assert RunKey(tenant=TENANT, run_id=envelope.run_id) not in world.runs.rows


@virtually
async def test_a_run_that_expired_in_the_queue_is_failed_by_its_claim_and_gives_its_slot_back() -> None:
    world = World()
    envelope = await submitted(world, ONE | {"queue_timeout": "1m"})
    await asyncio.sleep(61)
    assert await world.process().work() == Ack()
    run = await world.row(envelope)
    consistent(run)
    assert (run.reason, (await world.slots.load("model")).depth) == (Reason.EXPIRED_IN_QUEUE, 0)
    assert world.log == []


# --- wakes -------------------------------------------------------------------------------------


@virtually
async def test_a_wake_for_a_run_nobody_knows_is_dropped_after_one_look() -> None:
    world = World()
    envelope = await submitted(world, row=False)
    await world.queue.send(RESUME_QUEUE, wake_for(envelope))
    process = world.process()
    assert await process.work(RESUME_QUEUE) == Ack()
    assert [c.method for c in process.runs.calls] == ["get"]
    assert world.runs.rows == {}


async def suspended(world: World) -> Envelope:
    retry = {"max_attempts": 2, "backoff": "30s", "jitter": "none"}
    steps = {"a": {"task": "probe.play", "input": {"fail": 1, "ms": 100}, "retry": retry}}
    envelope = await submitted(world, {"steps": steps})
    await world.process().work()
    assert (await world.row(envelope)).status is Status.WAITING
    return envelope


@virtually
async def test_wakes_too_many_cost_a_look_each_and_one_claim() -> None:
    world = World()
    envelope = await suspended(world)
    for _ in range(4):
        await world.queue.send(RESUME_QUEUE, wake_for(envelope), delay_seconds=31)
    await asyncio.sleep(32)
    process = world.process()
    messages = await process.receive(RESUME_QUEUE, limit=10)
    assert len(messages) == 5
    assert await asyncio.gather(*map(process.take, messages)) == [Ack()] * 5
    run = await world.row(envelope)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 2)
    assert [(s.attempt) for s in world.log if s.what == "start"] == [1, 2]


@virtually
async def test_a_wake_a_little_early_comes_again_when_the_run_is_due() -> None:
    world = World()
    envelope = await suspended(world)
    await asyncio.sleep(20)
    process = world.process()
    (message,) = await process.queue.receive(RESUME_QUEUE, limit=1, wait_seconds=20, visibility_seconds=60)
    early = replace(message, message=wake_for(envelope))
    loop_time = loop().time()
    assert loop_time >= 30
    row = await world.row(envelope)
    assert row.due_at is not None
    assert await process.take(early) == Ack()


@virtually
async def test_a_dead_workers_run_goes_on_by_its_wake_a_lease_later() -> None:
    world = World()
    envelope = await suspended(world)
    await asyncio.sleep(31)
    dead, heir = world.process(), world.process()
    (message,) = await dead.receive(RESUME_QUEUE)
    dead.take(message)
    await asyncio.sleep(0.05)
    await dead.kill()
    assert (await world.row(envelope)).epoch == 2
    for _ in range(10):
        messages = await heir.receive(RESUME_QUEUE, wait=20)
        for message in messages:
            what = await heir.take(message)
            await (heir.queue.delete([message]) if what == Ack() else heir.queue.hide([message], seconds=what.seconds))
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 3)
    assert (run.finished_at - run.started_at).total_seconds() < 31 + 75


# --- crashes -----------------------------------------------------------------------------------


@virtually
async def test_a_dead_workers_run_is_set_apart_and_done_by_the_next_one() -> None:
    world = World()
    envelope = await submitted(world, CHAIN)
    dead, heir = world.process(), world.process()
    (message,) = await dead.receive()
    dead.take(message)
    await asyncio.sleep(12)
    await dead.kill()
    await asyncio.sleep(66)
    assert await heir.work() == Ack()
    assert await depths(world, RESUME_QUEUE) == (1, 0, 0)
    assert await heir.work(RESUME_QUEUE) == Ack()
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 2)
    assert [(s.step, s.attempt) for s in world.log if s.what == "start"] == [("a", 1), ("b", 1), ("b", 2)]
    assert await depths(world) == await depths(world, RESUME_QUEUE) == (0, 0, 0)


@virtually
async def test_a_suspect_whose_worker_dies_too_still_has_a_message_that_brings_it_back() -> None:
    """Commits and visibility have clocks of their own: the message may come back well before the lease ends."""
    steps = {
        f"s{n}": {"task": "probe.play", "needs": [f"s{n - 1}"] if n else [], "input": {"ms": 15_000}} for n in range(40)
    }
    for died_after in (1, 17, 33):
        world = World(seed=died_after)
        envelope = await submitted(world, {"steps": steps})
        for _ in range(3):
            process = world.process()
            process.begin(_serve(process))
            epoch = (await world.row(envelope)).epoch
            for _ in range(400):
                if (await world.row(envelope)).epoch != epoch:
                    break
                await asyncio.sleep(0.5)
            await asyncio.sleep(died_after)
            await process.kill()
        heir = world.process()
        server = heir.begin(_serve(heir))
        await asyncio.sleep(100)
        assert (await world.row(envelope)).epoch == 4, f"no message brought it back, dead after {died_after} s"
        server.cancel()


async def _serve(process: Process) -> None:
    """A worker of one message at a time, which keeps it hidden as `Keeper` does."""
    while True:
        for queue in (RESUME_QUEUE, LANE):
            for message in await process.receive(queue, wait=1):
                what = await _kept(process, message)
                if isinstance(what, Redeliver):
                    await process.queue.hide([message], seconds=what.seconds)
                else:
                    await process.queue.delete([message])


async def _kept(process: Process, message: Received) -> Disposition:
    task = process.take(message)
    while not task.done():
        await process.queue.hide([message], seconds=66)
        await asyncio.wait({task}, timeout=20)
    return task.result()


@pytest.mark.parametrize("receives", [3, 4, 9])
@virtually
async def test_a_message_received_three_times_is_set_apart_unread(receives: int) -> None:
    world = World()
    envelope = await submitted(world)
    process = world.process()
    (message,) = await process.receive()
    assert await process.take(replace(message, receives=receives)) == Ack()
    assert process.runs.calls == []
    assert [c.args[1] for c in process.queue.calls if c.method == "send"] == [envelope]
    assert (await process.work(RESUME_QUEUE)) == Ack()
    assert (await world.row(envelope)).status is Status.SUCCEEDED


@virtually
async def test_a_suspect_is_worked_on_apart_where_that_is_possible() -> None:
    world = World()
    await submitted(world)
    process = world.process()
    apart: list[Received] = []

    async def isolate(message: Received) -> Disposition:
        apart.append(message)
        return Redeliver(seconds=7)

    process.runner = process.new_runner(isolate)
    (message,) = await process.receive()
    suspect = replace(message, queue=RESUME_QUEUE)
    assert await process.take(suspect) == Redeliver(seconds=7)
    assert apart == [suspect]
    assert [call.method for call in process.runs.calls] == ["get"]


@virtually
async def test_a_wake_that_finds_a_dead_lease_is_worked_on_apart_and_others_are_not() -> None:
    world = World()
    envelope = await suspended(world)
    await asyncio.sleep(31)
    process = world.process()
    apart: list[Received] = []

    async def isolate(message: Received) -> Disposition:
        apart.append(message)
        return Ack()

    dead = world.process()
    (message,) = await dead.receive(RESUME_QUEUE)
    dead.take(message)
    await asyncio.sleep(0.05)
    await dead.kill()
    process.runner = process.new_runner(isolate)
    await asyncio.sleep(67)
    await process.work(RESUME_QUEUE)
    assert len(apart) == 1
    assert (await world.row(envelope)).epoch == 2


@virtually
async def test_five_workers_killed_by_one_run_are_enough() -> None:
    world = World()
    envelope = await submitted(world, LONG)
    for _ in range(8):
        process = world.process()
        process.begin(_serve(process))
        await asyncio.sleep(80)
        await process.kill()
        if (await world.row(envelope)).terminal:
            break
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.reason, run.crashes) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED, 5)
    assert len([s for s in world.log if s.what == "start"]) == 5


# --- faults ------------------------------------------------------------------------------------


async def comes_again_after(process: Process) -> float:
    """Seconds until the lane delivers its one message, for the first time."""
    start = loop().time()
    while not (messages := await process.queue.receive(LANE, limit=1, wait_seconds=20, visibility_seconds=66)):
        pass
    (message,) = messages
    assert message.receives == 1
    return loop().time() - start


@pytest.mark.parametrize(
    ("fault", "outages", "delay"),
    [(Fault.DOWN, outages, delay) for outages, delay in ((0, 60), (1, 120), (3, 480), (4, 900), (50, 900))]
    + [(Fault.THROTTLED, outages, delay) for outages, delay in ((0, 5), (1, 10), (3, 40), (8, 900), (50, 900))],
)
@virtually
async def test_a_claim_that_meets_a_fault_puts_a_copy_back_later_and_later(
    fault: Fault, outages: int, delay: int
) -> None:
    world = World()
    envelope = await submitted(world, outages=outages)
    process = world.process()
    process.runs.rule("put", fault)
    assert await process.work() == Ack()
    assert process.runs.count("put") == 3
    (sent,) = [c for c in process.queue.calls if c.method == "send"]
    assert sent.args[1] == replace(envelope, outages=outages + 1)
    assert await depths(world) == (0, 0, 1)
    assert await comes_again_after(process) == pytest.approx(delay, abs=1)


@pytest.mark.parametrize("faults", list(itertools.permutations([Fault.LOST, Fault.THROTTLED, Fault.THROTTLED])))
@virtually
async def test_a_claim_that_may_yet_be_done_waits_longer_than_a_lease(faults: tuple[Fault, ...]) -> None:
    world = World()
    await submitted(world)
    process = world.process()
    process.runs.plan("put", *faults)
    process.runs.rule("get", Fault.DOWN)
    assert await process.work() == Ack()
    assert await comes_again_after(process) == pytest.approx(60, abs=1)


@virtually
async def test_a_copy_that_can_not_be_sent_is_handed_back() -> None:
    world = World()
    await submitted(world)
    process = world.process()
    process.runs.rule("put", Fault.DOWN)
    process.queue.rule("send", Fault.DOWN)
    (message,) = await process.receive()
    assert await process.take(message) == Redeliver(seconds=60)


@virtually
async def test_a_claim_done_after_it_was_given_up_costs_a_lease_and_no_message() -> None:
    for role in ("envelope", "wake"):
        world = World()
        envelope = await (submitted(world) if role == "envelope" else suspended(world))
        process = world.process()
        process.runs.plan("put", Late(2), Fault.LOST, Fault.LOST)
        queue = LANE if role == "envelope" else RESUME_QUEUE
        if role == "wake":
            await asyncio.sleep(15)
        assert await process.work(queue) == Ack()
        server = process.begin(_serve(process))
        await asyncio.sleep(240)
        run = await world.row(envelope)
        consistent(run)
        assert run.status is Status.SUCCEEDED, role
        server.cancel()


@virtually
async def test_a_message_of_newer_code_and_one_that_says_nothing_are_handed_back() -> None:
    world = World()
    await world.queue.send_body(LANE, "{}")
    process = world.process()
    (message,) = await process.receive()
    assert message.message is None
    assert isinstance(await process.take(message), Redeliver)
    assert isinstance(await process.take(replace(message, newer=True)), Redeliver)
    assert process.runs.calls == []


@virtually
async def test_a_machine_whose_clock_is_off_works_on_nothing_and_hands_back_at_once_uncounted() -> None:
    world = World()
    envelope = await submitted(world)
    process = world.process()
    process.services = replace(process.services, clock_offset=lambda: 6.0)
    process.runner = process.new_runner()
    taken()
    for _ in range(12):
        (message,) = await process.receive(wait=10)
        assert (message.receives, message.message) == (1, envelope)
        assert await process.take(message) == Ack()
        await process.queue.delete([message])
    counted = {metric: sum(values) for (metric, _), values in taken().items()}
    assert (counted[Metric.CLOCK_OFF], Metric.OUTAGES in counted) == (12, False)
    assert (await world.row(envelope)).status is Status.QUEUED
    await asyncio.sleep(CLOCK_OFF_SECONDS)
    await world.process().work()
    assert (await world.row(envelope)).status is Status.SUCCEEDED


@virtually
async def test_where_it_can_not_hand_back_by_a_copy_the_message_itself_goes_back() -> None:
    world = World()
    await submitted(world)
    process = world.process()
    process.services = replace(process.services, clock_offset=lambda: -6.0)
    process.runner = process.new_runner()
    (message,) = await process.receive()
    process.queue.rule("send", lambda *_, **__: Fault.DOWN)
    assert await process.take(message) == Redeliver(seconds=CLOCK_OFF_SECONDS)


# --- hand-over ---------------------------------------------------------------------------------


@virtually
async def test_a_run_is_handed_over_at_a_step_boundary_and_goes_on_elsewhere() -> None:
    world = World()
    envelope = await submitted(world, CHAIN)
    process = world.process()
    (message,) = await process.receive()
    stop_before = world.services.clock.now() + timedelta(seconds=35)
    assert await process.take(message, stop_before=stop_before) == Ack()
    row = await world.row(envelope)
    assert (row.status, row.crashes) == (Status.WAITING, 0)
    assert loop().time() == pytest.approx(10, abs=0.1)
    other = world.process()
    assert await other.work(RESUME_QUEUE) == Ack()
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.epoch) == (Status.SUCCEEDED, 2)
    assert [(s.step, s.attempt) for s in world.log if s.what == "start"] == [("a", 1), ("b", 1)]
    assert loop().time() < 22


@virtually
async def test_a_hurried_worker_lets_every_run_go_as_soon_as_nothing_of_it_runs() -> None:
    world = World()
    envelope = await submitted(world, CHAIN)
    process = world.process()
    (message,) = await process.receive()
    task = process.take(message)
    await asyncio.sleep(3)
    process.runner.hurry(world.services.clock.now())
    assert await task == Ack()
    assert loop().time() == pytest.approx(10, abs=0.1)
    assert journal_of(await world.row(envelope))[-2:] == ["step.succeeded a", "run.suspended"]


@virtually
async def test_a_hurried_worker_lets_go_at_once_of_a_run_that_only_waits_for_its_retry() -> None:
    world = World()
    retry = {"max_attempts": 2, "backoff": "4s", "jitter": "none"}
    steps = {"a": {"task": "probe.play", "input": {"fail": 1}, "retry": retry}}
    envelope = await submitted(world, {"steps": steps})
    process = world.process()
    (message,) = await process.receive()
    task = process.take(message)
    await asyncio.sleep(1)
    process.runner.hurry(world.services.clock.now())
    assert await task == Ack()
    assert loop().time() == pytest.approx(1, abs=0.1)
    row = await world.row(envelope)
    assert row.due_at is not None
    assert (row.due_at - row.created_at).total_seconds() == 4


@virtually
async def test_a_step_held_back_for_want_of_time_beside_one_that_runs_does_not_make_its_holder_spin() -> None:
    world = World()
    retry = {"max_attempts": 2, "backoff": "1s", "jitter": "none"}
    steps = {
        "long": {"task": "probe.play", "input": {"ms": 300_000}, "timeout": "350s"},
        "a": {"task": "probe.play", "input": {"fail": 1}, "retry": retry, "timeout": "400s"},
    }
    envelope = await submitted(world, {"steps": steps})
    process = world.process()
    (message,) = await process.receive()
    task = process.take(message, stop_before=world.services.clock.now() + timedelta(seconds=400))
    await asyncio.sleep(10)
    turns, puts = loop().turns, process.runs.count("put")
    await asyncio.sleep(200)
    assert loop().turns - turns < 200 * 10
    assert process.runs.count("put") - puts <= 11
    assert await task == Ack()
    assert (await world.row(envelope)).status is Status.WAITING


@virtually
async def test_a_claim_of_a_run_that_has_nothing_left_to_claim_ends() -> None:
    """A row that changes under a verdict must not leave a loop that turns for ever."""
    world = World()
    envelope = await submitted(world)
    await world.process().work()
    process = world.process()
    row = await world.row(envelope)
    condition = IfVersion(version=row.version, submission=row.submission)
    outcome = await asyncio.wait_for(process.begin(process.runner._hold(row, condition)), 5)
    assert outcome.record == row
    assert process.runs.calls == []


def test_terms_are_the_settings() -> None:
    limits = engine_limits(Settings(lease_seconds=30, clock_skew_seconds=2))
    assert (limits.lease, limits.skew, limits.stop_before) == (timedelta(seconds=30), timedelta(seconds=2), None)


@virtually
async def test_a_suspect_that_is_the_only_message_of_its_process_is_worked_on_at_once() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"only": {"task": "core.echo"}}}))
    runner = MessageHandler(
        world.services,
        WorkflowCache(world.services.catalog, world.settings.classes),
        TaskRunner(world.settings, world.services.clock),
        worker="alone",
        alone=True,
    )
    (received,) = await world.queue.receive(LANE, limit=1, wait_seconds=0, visibility_seconds=1)
    assert await runner.handle(replace(received, receives=3)) == Ack()
    assert (await world.row(envelope)).status == "succeeded"
    assert (await world.queue.depth(RESUME_QUEUE)).visible == 0
