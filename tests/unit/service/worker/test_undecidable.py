"""A run that no worker can decide ends as what it is, and gives back what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fanfold.engine.errors import IllegalTransition
from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules import decide as rules
from fanfold.engine.rules.events import CancelAsked, Event, Undecidable
from fanfold.service.worker import run_commits
from fanfold.service.worker.dispositions import BUG_SECONDS, Ack, Redeliver
from tests.support.faults import Fault
from tests.support.game import Game, a_flow
from tests.support.virtual import virtually
from tests.support.world import RESUME_QUEUE, World, consistent

CHAIN = {
    "steps": {
        "a": {"task": "probe.play", "input": {"ms": 100}},
        "b": {"task": "probe.play", "needs": ["a"], "input": {"ms": 100}},
    }
}


def broken_where(monkeypatch: pytest.MonkeyPatch, broken: Any) -> list[Sequence[Event]]:
    """Let `decide` fail where `broken(run, events)` says so; returns the events it failed on."""
    failed: list[Sequence[Event]] = []

    def decide(run: Any, workflow: Any, events: Sequence[Event], *given: Any, **more: Any) -> Any:
        if broken(run, events) and not any(isinstance(event, Undecidable) for event in events):
            failed.append(events)
            raise ValueError("a bug")
        return rules.decide(run, workflow, events, *given, **more)

    monkeypatch.setattr(run_commits, "decide", decide)
    return failed


@virtually
async def test_a_run_that_can_not_be_decided_ends_saying_so_and_gives_its_slot_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = broken_where(monkeypatch, lambda run, events: True)
    world = World()
    envelope = await world.submit(await world.register(CHAIN))
    async with world.worker():
        run = await world.ended(envelope, within=900)
    consistent(run)
    assert (run.status, run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert run.error is not None
    assert (run.error.type, run.error.message) == ("internal", "what follows can't be decided: ValueError: a bug")
    assert (await world.slots.load("model")).depth == 0
    assert 1 < len(failed) < 10


@virtually
async def test_a_held_run_that_can_not_be_decided_ends_as_that_and_not_as_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken_where(monkeypatch, lambda run, events: run.status is Status.RUNNING)
    world = World()
    envelope = await world.submit(await world.register(CHAIN))
    async with world.worker():
        run = await world.ended(envelope, within=1800)
    consistent(run)
    assert (run.status, run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert run.error is not None
    assert run.error.type == "internal"


@virtually
async def test_one_decision_that_fails_once_costs_the_run_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = broken_where(monkeypatch, lambda run, events: not failed)
    world = World()
    run = await world.play(CHAIN, within=900)
    assert (run.status, len(failed)) == (Status.SUCCEEDED, 1)


@virtually
async def test_a_run_is_not_given_up_before_its_message_has_raised_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = broken_where(monkeypatch, lambda run, events: True)
    world = World()
    envelope = await world.submit(await world.register(CHAIN))
    await world.queue.send(RESUME_QUEUE, envelope)
    process = world.process()
    (message,) = await process.receive(RESUME_QUEUE)
    # A delivery before this one may have ended with its worker: that says nothing of what this one meets.
    assert await process.take(replace(message, receives=3)) == Ack()
    assert (await world.row(envelope)).status is Status.QUEUED
    await asyncio.sleep(BUG_SECONDS)
    (copy,) = await process.receive(RESUME_QUEUE, wait=20)
    assert copy.message == replace(envelope, raised=True)
    assert await process.take(copy) == Ack()
    assert (await world.row(envelope)).status is Status.FAILED
    assert len(failed) == 2


@virtually
async def test_a_bug_after_a_death_is_a_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = broken_where(monkeypatch, lambda run, events: not failed)
    world = World()
    envelope = await world.submit(await world.register(CHAIN))
    dead = world.process()
    (message,) = await dead.receive()
    dead.take(message)
    await dead.kill()
    async with world.worker():
        run = await world.ended(envelope, within=1800)
    assert (run.status, len(failed)) == (Status.SUCCEEDED, 1)


@virtually
async def test_a_bug_that_can_not_be_noted_is_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_where(monkeypatch, lambda run, events: True)
    world = World()
    envelope = await world.submit(await world.register(CHAIN))
    process = world.process()
    (message,) = await process.receive()
    process.queue.rule("send", Fault.DOWN)
    assert await process.take(message) == Redeliver(seconds=BUG_SECONDS)
    assert (await world.row(envelope)).status is Status.QUEUED


def test_a_run_under_anothers_valid_lease_is_not_ended_by_one_that_can_not_decide_it() -> None:
    game = Game(a_flow({"a": {}})).claim()
    with pytest.raises(IllegalTransition):
        game.feed(Undecidable(owner="another", detail="a bug"))


def test_a_run_that_is_to_be_cancelled_and_can_not_be_decided_is_cancelled() -> None:
    game = Game(a_flow({"a": {}})).claim()
    game.feed(CancelAsked(by="me"))
    assert game.run.owner is not None
    game.feed(Undecidable(owner=game.run.owner, detail="a bug"))
    assert (game.run.status, game.statuses) == (Status.CANCELLED, {"a": "cancelled"})
