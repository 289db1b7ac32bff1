"""One invocation of the worker Lambda: a batch worked on at once, each message to its own end (R5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fanfold.engine.record.messages import Received
from fanfold.engine.record.run import Status
from fanfold.service.settings import Settings
from fanfold.service.worker.batch import LEFT_SECONDS, work
from tests.support.faults import Fault
from tests.support.virtual import loop, virtually
from tests.support.world import LANE, RESUME_QUEUE, Process, World


def one(ms: float, **given: Any) -> dict[str, Any]:
    return {"steps": {"a": {"task": "probe.play", "input": {"ms": ms}, **given}}}


async def batch(world: World, *documents: dict[str, Any]) -> tuple[list[Any], list[Received]]:
    """Submit one run of each and receive all their messages, visible again in the function's timeout."""
    envelopes = []
    for n, document in enumerate(documents):
        envelopes.append(await world.submit(await world.register({"name": f"flow-{n}", **document})))
    messages = await world.queue.receive(LANE, limit=10, wait_seconds=0, visibility_seconds=900)
    return envelopes, list(messages)


def invoke(
    process: Process, messages: Sequence[Received], *, seconds_left: float = 900, spent: bool = False
) -> asyncio.Task[Sequence[str]]:
    return process.begin(
        work(process.services, process.runner, messages, seconds_left=seconds_left, spent=lambda: spent)
    )


async def left(world: World) -> int:
    depth = await world.queue.depth(LANE)
    return depth.visible + depth.in_flight


@virtually
async def test_messages_done_with_are_deleted_while_others_go_on_and_the_last_are_left_to_the_mapping() -> None:
    world = World()
    _, messages = await batch(world, one(100), one(5_000), one(9_000), one(9_000))
    process = world.process()
    task = invoke(process, messages)
    await asyncio.sleep(2)
    assert await left(world) == 3
    await asyncio.sleep(5)
    assert await left(world) == 2
    assert await task == []
    assert await left(world) == 2
    assert loop().tasks_of(process.name) == set()


@virtually
async def test_messages_that_are_done_with_within_a_second_of_each_other_are_deleted_by_one_call() -> None:
    world = World()
    _, messages = await batch(world, one(100), one(400), one(800), one(9_000))
    process = world.process()
    deleted: list[int] = []
    delete = process.services.queue.delete

    async def counted(messages: Sequence[Received]) -> None:
        deleted.append(len(messages))
        await delete(messages)

    process.services.queue.delete = counted  # type: ignore[method-assign]  # this process's own queue
    assert await invoke(process, messages) == []
    assert deleted == [3]
    assert await left(world) == 1


@virtually
async def test_a_spent_process_deletes_even_the_last_for_it_ends_without_an_answer() -> None:
    world = World()
    _, messages = await batch(world, one(100))
    assert await invoke(world.process(), messages, spent=True) == []
    assert await left(world) == 0


@virtually
async def test_messages_are_hidden_for_a_lease_at_receipt_and_again_while_they_are_worked_on() -> None:
    world = World()
    _, messages = await batch(world, one(150_000))
    task = invoke(world.process(), messages)
    for _ in range(14):
        await asyncio.sleep(10)
        assert (await world.queue.depth(LANE)).visible == 0
    await task
    await world.queue.delete(messages)  # as the mapping does
    dead, messages = world.process(), (await batch(world, one(150_000)))[1]
    invoke(dead, messages)
    await asyncio.sleep(5)
    await dead.kill()
    await asyncio.sleep(67)
    assert (await world.queue.depth(LANE)).visible == 1


@virtually
async def test_a_runs_failure_is_no_failure_of_its_message() -> None:
    world = World()
    (envelope,), messages = await batch(world, {"steps": {"a": {"task": "chaos.fail"}}})
    assert await invoke(world.process(), messages) == []
    assert (await world.row(envelope)).status is Status.FAILED


@virtually
async def test_what_goes_back_is_listed_and_hidden_for_as_long_as_it_says() -> None:
    world = World()
    _, messages = await batch(world, one(100), one(500_000))
    holder = world.process()
    holder.take(messages[1])
    await asyncio.sleep(1)
    assert await invoke(world.process(), messages) == [messages[1].message_id]
    await holder.kill()
    await world.queue.delete(messages[:1])
    await asyncio.sleep(55)
    assert (await world.queue.depth(LANE)).visible == 0
    await asyncio.sleep(15)
    assert (await world.queue.depth(LANE)).visible == 1


@virtually
async def test_a_bug_in_one_messages_handling_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    envelopes, messages = await batch(world, one(100), one(100))
    process = world.process()
    handle = process.runner.handle

    async def buggy(message: Received, **given: Any) -> Any:
        if message is messages[0]:
            raise RuntimeError("a bug")
        return await handle(message, **given)

    monkeypatch.setattr(process.runner, "handle", buggy)
    assert await invoke(process, messages) == [messages[0].message_id]
    assert (await world.row(envelopes[1])).status is Status.SUCCEEDED
    assert "could not be handled" in caplog.text


@virtually
async def test_a_message_whose_handling_cancels_itself_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    envelopes, messages = await batch(world, one(100), one(500))
    process = world.process()
    handle = process.runner.handle

    async def handle_or_not(message: Received, **given: Any) -> Any:
        if message is messages[0]:
            raise asyncio.CancelledError
        return await handle(message, **given)

    monkeypatch.setattr(process.runner, "handle", handle_or_not)
    assert await invoke(process, messages) == [messages[0].message_id]
    assert (await world.row(envelopes[1])).status is Status.SUCCEEDED


@virtually
async def test_near_the_end_of_its_time_an_invocation_hands_its_runs_over() -> None:
    world = World()
    steps = {
        "a": {"task": "probe.play", "input": {"ms": 20_000}, "timeout": "30s"},
        "b": {"task": "probe.play", "needs": ["a"], "timeout": "30s"},
    }
    (envelope,), messages = await batch(world, {"steps": steps})
    assert await invoke(world.process(), messages, seconds_left=75) == []
    row = await world.row(envelope)
    assert (row.status, list(row.steps)) == (Status.WAITING, ["a"])
    assert (await world.queue.depth(RESUME_QUEUE)).delayed + (await world.queue.depth(RESUME_QUEUE)).visible == 1


@virtually
async def test_what_does_not_end_in_time_is_broken_off_and_goes_on_elsewhere_at_once_without_being_counted() -> None:
    world = World(settings=Settings(chaos=True, hand_over_margin_seconds=0))  # too little time is kept for the end
    (short, long), messages = await batch(world, one(100, timeout="95s"), one(600_000, timeout="95s"))
    process = world.process()
    assert await invoke(process, messages, seconds_left=100) == []
    assert loop().time() < 100
    assert loop().tasks_of(process.name) == set()
    row = await world.row(long)
    assert (row.status, row.crashes, row.steps["a"].interruptions) == (Status.WAITING, 0, 0)
    assert (await world.row(short)).status is Status.SUCCEEDED
    assert (await world.queue.depth(RESUME_QUEUE)).visible == 1


@virtually
async def test_an_invocation_that_runs_out_of_time_ends_before_it_with_nothing_left_running() -> None:
    world = World()
    _, messages = await batch(world, one(30_000, timeout="35s"))
    process = world.process()
    process.runs.rule("put", lambda *_, **__: Fault.THROTTLED if loop().time() > 20 else Fault.NONE)
    again = await invoke(process, messages, seconds_left=70)
    assert again == [messages[0].message_id]
    assert loop().time() <= 70 - LEFT_SECONDS / 2
    assert loop().tasks_of(process.name) == set()


@virtually
async def test_a_queue_that_can_not_be_asked_fails_no_run() -> None:
    world = World()
    envelopes, messages = await batch(world, one(100), one(40_000))
    process = world.process()
    for method in ("hide", "delete"):
        process.queue.rule(method, Fault.DOWN)
    assert await invoke(process, messages) == []
    for envelope in envelopes:
        assert (await world.row(envelope)).status is Status.SUCCEEDED
