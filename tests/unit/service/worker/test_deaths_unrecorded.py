"""Workers that die before they have committed anything of a run: each death is counted all the same (R7)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fanfold.engine.record.messages import Envelope
from fanfold.engine.record.run import Reason, Run, Status
from fanfold.engine.rules.delivery import MOST_HAND_BACKS
from fanfold.service.settings import Settings
from fanfold.service.worker import run_commits
from fanfold.service.worker.dispositions import Redeliver
from tests.support.faults import Fault
from tests.support.virtual import PROCESS, loop, virtually
from tests.support.world import LANE, RESUME_QUEUE, World, consistent, with_fan_out

ONE = {"steps": {"a": {"task": "probe.play"}}}
NAP = {"steps": {"nap": {"wait": {"for": "30s"}}, "a": {"task": "probe.play", "needs": ["nap"]}}}


async def submitted(world: World, document: dict[str, Any], input: Any = None, **given: Any) -> Envelope:
    return await world.submit(await world.register(document), input, **given)


class Deadly:
    """Whoever decides what follows for this run dies of it: nothing of that decision is ever written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaths = 0
        self.run_id = ""
        self._decide = run_commits.decide
        monkeypatch.setattr(run_commits, "decide", self)

    def __call__(self, run: Run, workflow: Any, events: Any, now: Any, *, goes_on: bool = True, **given: Any) -> Any:
        if run.id == self.run_id and goes_on:
            self.deaths += 1
            for task in loop().tasks_of(PROCESS.get()):
                task.cancel()
            raise asyncio.CancelledError
        return self._decide(run, workflow, events, now, goes_on=goes_on, **given)


async def served(world: World, envelope: Envelope, *, within: float) -> Run:
    """Workers serve both queues, the dead replaced at once, until the run has ended."""
    end = loop().time() + within
    while loop().time() < end:
        row = world.runs.rows.get(next(key for key in world.runs.rows if key.run_id == envelope.run_id))
        if row is not None and row.terminal:
            return row
        process = world.process()
        for queue in (RESUME_QUEUE, LANE):
            for message in await process.receive(queue, wait=1):
                task = process.take(message)
                await asyncio.wait({task})
                if task.cancelled():
                    continue
                if isinstance(task.result(), Redeliver):
                    await process.queue.hide([message], seconds=task.result().seconds)
                else:
                    await process.queue.delete([message])
    raise AssertionError("the run has not ended")


@virtually
async def test_a_run_that_kills_whoever_decides_on_it_first_ends_and_gives_its_slot_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, deadly = World(), Deadly(monkeypatch)
    envelope = await submitted(world, ONE)
    deadly.run_id = envelope.run_id
    run = await served(world, envelope, within=1_200)
    consistent(run)
    assert (run.status, run.reason, run.crashes) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED, 5)
    # The first delivery of a fresh run is claimed in the one write that begins its steps: nothing tells of that death.
    assert deadly.deaths == 6
    assert (await world.slots.load("model")).depth == 0


@virtually
async def test_so_does_one_that_kills_whoever_takes_it_up_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world, deadly = World(), Deadly(monkeypatch)
    envelope = await submitted(world, NAP)
    await world.process().work()
    deadly.run_id = envelope.run_id
    run = await served(world, envelope, within=1_200)
    assert (run.status, run.reason, deadly.deaths) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED, 6)


@virtually
async def test_so_does_one_whose_wakes_come_from_the_sweeper_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of the sweeper's is a first delivery: that the run is overdue tells of the death."""
    world, deadly = World(), Deadly(monkeypatch)
    envelope = await submitted(world, NAP)
    await world.process().work()
    deadly.run_id = envelope.run_id
    await asyncio.sleep(32)
    for _ in range(12):
        await world.ring(envelope)
        process = world.process()
        messages = await process.receive(RESUME_QUEUE)
        task = process.take(messages[0])
        await asyncio.wait({task})
        await process.queue.delete(messages)
        await asyncio.sleep(70)
    run = await world.row(envelope)
    assert (run.status, run.reason, deadly.deaths) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED, 6)


@virtually
async def test_so_does_one_whose_envelope_the_sweeper_sends_again_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A death before the message was hidden hides it for a function's whole timeout: the sweeper is faster."""
    world, deadly = World(), Deadly(monkeypatch)
    envelope = await submitted(world, ONE)
    deadly.run_id = envelope.run_id
    for _ in range(8):
        process = world.process()
        (message, *_) = await process.receive(LANE)
        await asyncio.wait({process.take(message)})
        await process.queue.delete([message])
        await world.queue.send(LANE, replace(envelope, again=True))
        await asyncio.sleep(70)
    run = await world.row(envelope)
    # The first death leaves nothing; the second is claimed first, and the third finds that out and is apart.
    assert (run.status, run.epoch, deadly.deaths) == (Status.RUNNING, 1, 2)
    assert (await world.queue.depth(RESUME_QUEUE)).visible > 0


@virtually
async def test_a_fold_of_a_maps_items_that_kills_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(settings=with_fan_out(inline_map_items=1))
    wide = {"steps": {"m": {"map": {"over": "${input}", "task": "probe.play", "via": "stepfunctions"}}}}
    envelope = await submitted(world, wide, [{}, {}])
    await world.process().work()
    looked = 0

    async def deadly(self: Any, *_: Any, **__: Any) -> Any:
        nonlocal looked
        looked += 1
        raise asyncio.CancelledError

    monkeypatch.setattr("fanfold.service.maps.Maps.look", deadly)
    run = await served(world, envelope, within=3_000)
    # Two rings are under way, of the map's end and of the look that is due: the first delivery of each tells nothing.
    assert (run.status, run.reason, looked) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED, 5 + 2)


# --- what is no death ---------------------------------------------------------------------------


@pytest.mark.parametrize("receives", [2, 9])
@virtually
async def test_receipts_alone_fail_nobody_and_cost_a_write_more(receives: int) -> None:
    """A throttled mapping receives, and hands nothing to anybody."""
    world = World()
    envelope = await submitted(world, ONE)
    for _ in range(receives - 1):
        (message,) = await world.process().receive()
        await world.queue.hide([message], seconds=0)
    process = world.process()
    await process.work()
    if receives > 2:
        await process.work(RESUME_QUEUE)
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.crashes, run.epoch) == (Status.SUCCEEDED, 0, 1)
    assert process.runs.count("put") == 3
    assert (await world.queue.depth(RESUME_QUEUE)).visible == 0


@pytest.mark.parametrize("fault", ["a wrong clock", "an outage"])
@virtually
async def test_a_copy_of_a_message_that_was_received_before_says_so(fault: str) -> None:
    """A copy begins with no receipts; without a word of its own it would be claimed as if nobody had died of it."""
    world = World()
    envelope = await submitted(world, ONE)
    for receives in (1, 2):
        process = world.process()
        if fault == "a wrong clock":
            process.services = replace(process.services, clock_offset=lambda: 6.0)
            process.runner = process.new_runner()
        else:
            process.runs.rule("put", Fault.DOWN)
        (message, *_) = await process.receive(LANE)
        await process.take(replace(message, receives=receives))
        await world.queue.delete([message])
        await asyncio.sleep(400)
        (copy, *_) = await world.process().receive(LANE)
        assert isinstance(copy.message, Envelope)
        assert (copy.receives, copy.message.again) == (1, receives > 1)
        await world.queue.hide([copy], seconds=0)
    assert replace(copy.message, again=False, outages=0) == envelope


@virtually
async def test_a_first_delivery_is_claimed_and_begun_in_one_write() -> None:
    world = World()
    await submitted(world, ONE)
    process = world.process()
    await process.work()
    assert (process.runs.count("put"), process.runs.count("get")) == (2, 0)


@virtually
async def test_a_message_about_a_run_in_good_hands_never_becomes_a_dead_letter() -> None:
    world = World()
    envelope = await submitted(world, {"steps": {"a": {"task": "probe.play", "input": {"ms": 1_500_000}}}})
    holder, other = world.process(), world.process()
    (message,) = await holder.receive()
    holder.take(message)
    await asyncio.sleep(1)
    await world.queue.send(LANE, envelope)
    most = 0
    while loop().time() < 1_200:
        for queue in (LANE, RESUME_QUEUE):
            for message in await other.receive(queue, wait=10):
                most = max(most, message.receives)
                what = await other.take(message)
                if isinstance(what, Redeliver):
                    await other.queue.hide([message], seconds=what.seconds)
                else:
                    await other.queue.delete([message])
    assert most == MOST_HAND_BACKS


@virtually
async def test_an_outage_of_payloads_costs_a_held_run_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be decided needs a payload that can't be had: the run stays in hand, and its holder is not dead."""
    world = World(settings=Settings(chaos=True, inline_bytes=64))
    steps = {
        **{name: {"task": "probe.play", "input": {"out": name * 100}} for name in ("a", "b")},
        "c": {"task": "probe.play", "needs": ["a", "b"], "input": ["${steps.a.output}", "${steps.b.output}"]},
    }
    envelope = await submitted(world, {"steps": steps})
    process = world.process()
    monkeypatch.setattr("fanfold.service.payloads.KEPT_BYTES", 0)  # what it has stored it forgets
    process.blobs.rule("get", lambda *_: Fault.DOWN if loop().time() < 300 else Fault.NONE)
    await process.work()
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.crashes, run.epoch) == (Status.SUCCEEDED, 0, 1)
    assert loop().time() >= 300
