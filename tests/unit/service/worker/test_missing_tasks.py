"""Runs whose worker lacks a task: a deployment that goes wrong ends none of them, and its repair lets them go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from fanfold.engine.record.run import Failure, Status, StepStatus
from fanfold.engine.rules.effects import SendWake, StartAttempt
from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import Settings
from fanfold.tasks import registry
from tests.support.game import LIMITS, Game, a_flow
from tests.support.virtual import virtually
from tests.support.world import World, consistent

WHY = Failure(type="task_not_loaded", message="task 'probe.play' could not be loaded: functions.tasks.llm: no openai")
LACKING = replace(LIMITS, missing={"probe.play": WHY})
DAY = 86_400


@contextmanager
def a_bad_deployment(lacks: str = "probe.play") -> Iterator[None]:
    """Every worker that claims meanwhile lacks the task."""
    taken = registry._tasks.pop(lacks)
    try:
        yield
    finally:
        registry._tasks[lacks] = taken


def a_game(steps: dict[str, Any] | None = None, **given: Any) -> Game:
    return Game(a_flow(steps or {"a": {}}, timeout="30d", **given), limits=LACKING)


def test_a_step_whose_task_is_missing_is_put_off_and_nothing_of_it_is_counted() -> None:
    game = a_game().claim()
    state = game.run.steps["a"]
    assert (state.status, state.attempts, state.failures, state.error) == (StepStatus.RETRYING, 0, 0, WHY)
    assert game.run.status is Status.WAITING
    assert game.effects == (*game.effects[:-1], SendWake(at=game.now + timedelta(minutes=1)))
    assert not [effect for effect in game.effects if isinstance(effect, StartAttempt)]


def test_it_is_looked_at_ever_less_often_and_goes_on_when_the_task_is_there_again() -> None:
    game = a_game().claim()
    pauses = []
    for _ in range(8):
        assert game.run.due_at is not None
        pauses.append((game.run.due_at - game.now).total_seconds() / 60)
        game.after(60 * pauses[-1]).claim()
    assert pauses == [1, 1, 2, 4, 8, 15, 15, 15]
    assert [entry.type for entry in game.run.journal if entry.step == "a"] == ["step.retry_scheduled"], "said once"
    assert game.run.due_at is not None
    game.now, game.limits = game.run.due_at, LIMITS
    game.claim()
    state = game.run.steps["a"]
    assert (state.status, state.attempts, state.failures) == (StepStatus.RUNNING, 1, 0)
    assert (state.missing_since, state.error) == (None, None)
    game.succeed("a")
    assert game.run.status is Status.SUCCEEDED
    consistent(game.run)


def test_it_fails_once_it_was_missing_for_the_bounded_time_and_says_why() -> None:
    game = a_game()
    game.limits = replace(LACKING, missing_for=timedelta(days=3))
    game.claim()
    while not game.run.terminal:
        assert game.run.due_at is not None
        game.now = game.run.due_at
        game.claim()
    assert game.run.error is not None
    assert (game.run.reason, game.run.error.type) == ("step_failed", "task_not_loaded")
    assert "no openai" in game.run.error.message
    assert (game.now - game.run.created_at).total_seconds() == 3 * DAY


def test_a_second_lack_has_its_whole_time_again_and_a_pause_is_no_part_of_it() -> None:
    game = a_game({"a": {"retry": {"max_attempts": 2, "backoff": "1m"}}})
    game.limits = replace(LACKING, missing_for=timedelta(hours=1))
    game.claim().pause().after(2 * 3_600).resume().claim()
    assert game.run.status is Status.WAITING, "it was missing for no time yet"
    game.limits = LIMITS
    game.after(1_000).claim().fail("a")
    game.limits = replace(LACKING, missing_for=timedelta(hours=1))
    game.after(3_000).claim()
    assert game.run.status is Status.WAITING
    assert game.run.steps["a"].missing_since == game.now


def test_three_days_is_what_ships() -> None:
    assert engine_limits(Settings()).missing_for == timedelta(days=3)


def test_the_other_steps_of_the_run_go_on() -> None:
    game = a_game({"a": {}, "b": {"task": "core.echo"}, "c": {"task": "core.echo", "needs": ["b"]}}).claim()
    game.succeed("b").succeed("c")
    assert game.run.steps["a"].status is StepStatus.RETRYING
    assert game.run.status is Status.WAITING


@virtually
async def test_a_run_that_waited_for_days_goes_on_after_a_bad_deployment_and_its_repair() -> None:
    world = World(settings=Settings(chaos=True, retention_days=60))
    steps = {
        "hold": {"wait": {"for": "5d"}},
        "ask": {"task": "probe.play", "needs": ["hold"], "input": {"out": "answer"}},
        "then": {"task": "core.echo", "needs": ["ask"], "input": "${steps.ask.output}"},
    }
    document = {"timeout": "30d", "steps": steps, "output": "${steps.then.output}"}
    envelope = await world.submit(await world.register(document))
    innocent = await world.register({"name": "innocent", "steps": {"a": {"task": "core.echo"}}})
    async with world.worker():
        await world.services.clock.sleep(60)
    waiting = await world.row(envelope)
    assert (waiting.status, waiting.due_at) == (Status.WAITING, waiting.created_at + timedelta(days=5))
    await world.services.clock.sleep(5 * DAY)
    with a_bad_deployment():
        async with world.worker():
            await world.ring(envelope)
            await world.services.clock.sleep(3 * 3_600)
            assert (await world.ended(await world.submit(innocent), within=60)).status is Status.SUCCEEDED
    run = await world.row(envelope)
    assert (run.status, run.crashes, run.steps["ask"].attempts) == (Status.WAITING, 0, 0)
    assert run.steps["ask"].error is not None
    assert run.steps["ask"].error.type == "unknown_task"
    async with world.worker():
        run = await world.ended(envelope, within=1_000)
    assert (run.status, run.output) == (Status.SUCCEEDED, "answer")
    assert run.steps["ask"].attempts == 1
    consistent(run)


@virtually
async def test_a_map_whose_task_is_missing_begins_when_it_is_there_again() -> None:
    world = World()
    mapped = {"map": {"over": "${input}", "task": "probe.moody", "input": {"out": "${item}"}}}
    envelope = await world.submit(await world.register({"steps": {"m": mapped}}), [1, 2, 3])
    with a_bad_deployment("probe.moody"):
        async with world.worker():
            await world.services.clock.sleep(600)
    run = await world.row(envelope)
    assert (run.steps["m"].map, run.steps["m"].attempts) == (None, 0)
    async with world.worker():
        run = await world.ended(envelope, within=1_000)
    assert (run.status, run.steps["m"].output) == (Status.SUCCEEDED, [1, 2, 3])
    consistent(run)
