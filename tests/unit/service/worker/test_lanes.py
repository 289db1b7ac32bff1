"""Lanes: which one a run takes, who may use it, and how a worker process serves them (R7)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fanfold.engine.admission.lanes import LaneLimit, LaneRequest, lane_of, order, position, shares
from fanfold.engine.errors import InvalidDocument, LaneDenied
from fanfold.engine.record.messages import Envelope, QueueName, Received
from fanfold.engine.record.run import Status
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.worker.lanes import TURN_SECONDS
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.process import FAULT_PAUSE_SECONDS, POLL_SECONDS
from tests.support.faults import Fault
from tests.support.virtual import loop, virtually
from tests.support.world import Process, World

THREE = ("high", "normal", "low")


def taken(lanes: tuple[str, ...] = THREE, *, bound: LaneLimit | None = None, **asked: Any) -> str:
    return lane_of("model", lanes, LaneRequest(**asked), bound or LaneLimit())


def test_a_run_that_names_nothing_takes_normal_or_what_comes_nearest() -> None:
    assert taken() == "normal"
    assert taken(("fast", "steady", "slow")) == "steady"
    assert taken(("only",)) == "only"


def test_a_priority_means_a_lane_however_many_there_are() -> None:
    assert [taken(priority=p) for p in range(9, -1, -1)] == ["high"] * 3 + ["normal"] * 4 + ["low"] * 3
    assert {position(("only",), p) for p in range(10)} == {0}
    assert [position(("a", "b"), p) for p in (9, 5, 4, 0)] == [0, 0, 1, 1]


def test_an_unknown_lane_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidDocument, match="no lane 'fast'; there are: high, normal, low") as refused:
        taken(lane="fast")
    assert [problem.pointer for problem in refused.value.problems] == ["/lane"]


@pytest.mark.parametrize(
    ("bound", "asked", "pointer"),
    [
        (LaneLimit(max_lane="normal"), {"lane": "high"}, "/lane"),
        (LaneLimit(max_lane="normal"), {"priority": 7}, "/priority"),
        (LaneLimit(max_priority=6), {"lane": "high"}, "/lane"),
        (LaneLimit(max_priority=7), {"priority": 8}, "/priority"),
        (LaneLimit(max_lane="no-such-lane"), {"lane": "normal"}, "/lane"),
    ],
)
def test_what_a_token_may_not_use_is_denied(bound: LaneLimit, asked: dict[str, Any], pointer: str) -> None:
    with pytest.raises(LaneDenied, match="the token may use") as denied:
        taken(bound=bound, **asked)
    assert denied.value.pointer == pointer


def test_within_its_bound_a_token_uses_what_it_likes_and_without_a_wish_the_best_it_may() -> None:
    assert taken(lane="normal", bound=LaneLimit(max_lane="normal")) == "normal"
    assert taken(priority=7, bound=LaneLimit(max_priority=7)) == "high"
    assert taken(bound=LaneLimit(max_lane="low")) == "low"
    assert taken(bound=LaneLimit(max_priority=2)) == "low"
    assert taken(usual="high", bound=LaneLimit(max_lane="normal")) == "normal"


@pytest.mark.parametrize("lanes", [1, 2, 3, 5])
def test_of_ten_looks_each_other_lane_has_one_and_the_best_all_the_rest(lanes: int) -> None:
    looks = [order(lanes, turn) for turn in range(20)]
    assert Counter(look[0] for look in looks) == {0: 2 * (11 - lanes), **dict.fromkeys(range(1, lanes), 2)}
    for look in looks:
        assert sorted(look) == list(range(lanes))
        assert list(look[1:]) == sorted(look[1:])


def test_the_best_lane_gets_the_most_and_the_last_the_least_but_never_none() -> None:
    for total in range(7, 400):
        high, normal, low = shares(total, 3, least=2)
        assert high + normal + low == total
        assert high >= normal >= low >= 2
        assert high > low
    with pytest.raises(ValueError, match="7 is the least"):
        shares(6, 3, least=2)


def world_with_lanes() -> World:
    return World(settings=Settings(chaos=True, classes={"model": ClassSettings(lanes=THREE)}))


async def submitted(world: World, number: int, lane: str, *, ms: int = 1_000) -> list[Envelope]:
    workflow = await world.register({"steps": {"a": {"task": "probe.play", "input": {"ms": ms}}}})
    return [await world.submit(workflow, lane=lane) for _ in range(number)]


async def lanes_by_claim(world: World) -> list[str]:
    """The lanes of all runs that were begun, in the order in which they were."""
    runs = [run for run in world.runs.rows.values() if run.started_at is not None]
    return [run.lane for run in sorted(runs, key=lambda run: run.started_at or run.created_at)]


async def all_ended(world: World, envelopes: list[Envelope]) -> None:
    for envelope in envelopes:
        assert (await world.ended(envelope)).status is Status.SUCCEEDED


def receives(process: Process) -> Counter[str]:
    return Counter(call.args[0].role for call in process.queue.calls if call.method == "receive")


@virtually
async def test_high_overtakes_a_backlog_that_is_being_worked_on() -> None:
    world = world_with_lanes()
    await submitted(world, 300, "normal")
    async with world.process().worker(concurrency=4, lanes=THREE):
        await asyncio.sleep(5.5)
        begun = len(await lanes_by_claim(world))
        await all_ended(world, await submitted(world, 20, "high"))
    after = (await lanes_by_claim(world))[begun:]
    # Two looks of ten go to other lanes; what was taken before the first look at `high` came first, too.
    assert after[: after.index("high")] == ["normal"] * after.index("high")
    assert after.index("high") <= 4
    assert after[: len(after) - after[::-1].index("high")].count("normal") <= 4 + 2 * 3


@virtually
async def test_low_and_normal_go_on_under_high_that_never_ends() -> None:
    world = world_with_lanes()
    await submitted(world, 5, "low")
    await submitted(world, 5, "normal")
    await submitted(world, 100, "high")
    async with world.process().worker(concurrency=1, lanes=THREE):
        await asyncio.sleep(52)
    begun = await lanes_by_claim(world)
    assert Counter(begun[:50]) == {"high": 40, "normal": 5, "low": 5}


@virtually
async def test_while_the_best_lane_has_messages_no_other_is_asked_but_in_its_turn() -> None:
    world = world_with_lanes()
    await submitted(world, 100, "high")
    process = world.process()
    async with process.worker(concurrency=1, lanes=THREE):
        await asyncio.sleep(40.5)
    asked = receives(process)
    assert asked["high"] >= 40
    assert asked["normal"] + asked["low"] <= 2 * 4 + 2


@pytest.mark.parametrize(("concurrency", "within"), [(3, 0.1), (1, len(THREE) * TURN_SECONDS)])
@virtually
async def test_an_idle_worker_takes_a_message_at_once_from_whichever_lane_or_waits_at_each_in_turn(
    concurrency: int, within: float
) -> None:
    world = world_with_lanes()
    process = world.process()
    async with process.worker(concurrency=concurrency, lanes=THREE):
        await asyncio.sleep(7)
        for lane in THREE:
            (envelope,) = await submitted(world, 1, lane, ms=100)
            run = await world.ended(envelope)
            assert run.started_at is not None
            assert (run.started_at - run.created_at).total_seconds() < within
            await asyncio.sleep(3.7)
        asked = Counter(receives(process))
        await asyncio.sleep(60)
        asked = receives(process) - asked
        assert sum(asked[lane] for lane in THREE) <= 60 / TURN_SECONDS + len(THREE) + 1


@virtually
async def test_an_idle_worker_asks_each_lane_once_a_poll() -> None:
    world = world_with_lanes()
    process = world.process()
    async with process.worker(lanes=THREE):
        await asyncio.sleep(60)
        assert max(receives(process).values()) <= 60 / POLL_SECONDS + 2
        turns = loop().turns
        await asyncio.sleep(60)
        assert loop().turns - turns < 2_000


@pytest.mark.parametrize(("workers", "concurrency"), [(1, 1), (1, 2), (1, 4), (3, 4)])
@virtually
async def test_nothing_is_received_that_nobody_has_room_for(
    workers: int, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with_lanes()
    queues = {lane: QueueName(class_name="model", role=lane) for lane in THREE}
    receipts: list[int] = []
    handle = MessageHandler.handle

    async def noted(self: MessageHandler, received: Received, **given: Any) -> Any:
        receipts.append(received.receives)
        return await handle(self, received, **given)

    monkeypatch.setattr(MessageHandler, "handle", noted)
    chance = random.Random(11)
    envelopes: list[Envelope] = []
    async with AsyncExitStack() as fleet:
        for _ in range(workers):
            await fleet.enter_async_context(world.process().worker(concurrency=concurrency, lanes=THREE))
        for _ in range(60):
            envelopes += await submitted(world, 1, chance.choice(THREE), ms=chance.randrange(4_000))
            in_flight = [(await world.queue.depth(queue)).in_flight for queue in queues.values()]
            assert sum(in_flight) <= workers * concurrency
            await asyncio.sleep(chance.random())
        await all_ended(world, envelopes)
    assert receipts == [1] * len(envelopes)


@virtually
async def test_told_to_stop_while_it_waits_at_all_lanes_it_leaves_no_message_hidden() -> None:
    world = world_with_lanes()
    process = world.process()
    async with process.worker(concurrency=4, lanes=THREE) as worker:
        await asyncio.sleep(1)
        worker.stop()
        await process.working
    (envelope,) = await submitted(world, 1, "low")
    await asyncio.sleep(1)
    assert (await world.queue.depth(QueueName(class_name="model", role="low"))).visible == 1
    assert (await world.row(envelope)).status is Status.QUEUED
    assert loop().tasks_of(process.name) == set()


@virtually
async def test_whatever_comes_in_whichever_lane_is_executed_once_though_queues_fail_now_and_then() -> None:
    world = world_with_lanes()
    chance = random.Random(7)
    process = world.process()
    process.queue.rule("receive", lambda *_, **__: Fault.DOWN if chance.random() < 0.1 else Fault.NONE)
    hidden_for: list[float] = []

    def hides(*_: Any, seconds: float) -> Fault:
        hidden_for.append(seconds)
        return Fault.NONE

    process.queue.rule("hide", hides)
    envelopes: list[Envelope] = []
    async with process.worker(concurrency=3, lanes=THREE):
        for _ in range(60):
            for _ in range(chance.randrange(4)):
                envelopes += await submitted(world, 1, chance.choice(THREE), ms=chance.randrange(2_000))
            await asyncio.sleep(chance.random() * 3)
        await all_ended(world, envelopes)
    assert len([entry for entry in world.log if entry.what == "start"]) == len(envelopes)
    assert 0 not in hidden_for


@virtually
async def test_a_lane_that_can_not_be_asked_keeps_none_of_the_others_waiting() -> None:
    world = world_with_lanes()
    process = world.process()
    process.queue.rule("receive", lambda queue, **_: Fault.DOWN if queue.role == "high" else Fault.NONE)
    async with process.worker(concurrency=1, lanes=THREE):
        await asyncio.sleep(1)
        begun = loop().time()
        envelopes = [*await submitted(world, 5, "normal"), *await submitted(world, 5, "low")]
        await all_ended(world, envelopes)
        # Where nothing waits in the others either, a look each pause is all that the lost lane is asked for.
        assert loop().time() - begun < 10 + FAULT_PAUSE_SECONDS + len(THREE) * TURN_SECONDS
        asked = receives(process)["high"]
        await asyncio.sleep(60)
        assert receives(process)["high"] - asked <= 60 / FAULT_PAUSE_SECONDS + 1


@virtually
async def test_told_to_stop_it_gives_back_what_its_waits_still_bring_while_it_drains() -> None:
    world = world_with_lanes()
    process = world.process()
    async with process.worker(concurrency=9, lanes=THREE) as worker:
        await submitted(world, 1, "high", ms=20_000)
        await asyncio.sleep(1)
        worker.stop()
        await asyncio.sleep(0.1)
        for lane in THREE:
            await submitted(world, 1, lane)
        await asyncio.sleep(1)
        depths = [await world.queue.depth(QueueName(class_name="model", role=lane)) for lane in THREE]
        assert [depth.visible for depth in depths] == [1, 1, 1]
        assert not process.working.done()


@virtually
async def test_a_wait_at_a_lane_holds_one_slot_and_gives_it_back_with_what_others_have() -> None:
    world = world_with_lanes()
    async with world.process().worker(concurrency=10, lanes=THREE):
        await asyncio.sleep(1)
        await submitted(world, 8, "high", ms=30_000)
        await submitted(world, 3, "normal", ms=30_000)
        await asyncio.sleep(0.1)
        assert Counter(await lanes_by_claim(world)) == {"high": 8, "normal": 1}
        await asyncio.sleep(POLL_SECONDS)
        assert Counter(await lanes_by_claim(world)) == {"high": 8, "normal": 2}
        assert (await world.queue.depth(QueueName(class_name="model", role="normal"))).visible == 1
