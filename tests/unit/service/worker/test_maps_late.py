"""A map elsewhere rings before its execution is closed: its end is noticed within seconds all the same (R9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.adapters.memory.fanout import CLOSING_SECONDS
from fanfold.engine.language.maps import MapState, Via
from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import Run, Status, StepState, StepStatus
from fanfold.engine.record.timers import runnable
from fanfold.engine.rules.delivery import Claim, Defer, NotifyHolder, PollMaps, on_wake
from fanfold.engine.rules.events import MapCompletionSignalled, MapStillRunning, PauseAsked, ResumeAsked
from fanfold.engine.rules.kinds.map_step import AFTER_SIGNAL, FIRST_POLL
from fanfold.service.worker.map_batches import BatchEnd
from tests.support.builders import a_run, a_wake
from tests.support.clock import START
from tests.support.game import LIMITS, Game, a_flow
from tests.support.virtual import virtually
from tests.support.world import World, with_fan_out

PLAN = BlobRef(key="acme/plan", bytes=1, sha256="0" * 64)
ELSEWHERE = MapState(via=Via.STEP_FUNCTIONS, items=100, batch_size=25, batches_at_once=4, plan=PLAN)


def a_map(**given: Any) -> dict[str, Any]:
    mapped = {"over": "${input}", "task": "probe.play", "via": "stepfunctions", "tolerate": {"percent": 100}, **given}
    return {"steps": {"each": {"map": mapped, "timeout": "60s"}}, "output": "${steps.each.output}"}


@virtually
async def test_a_map_all_of_whose_items_are_recorded_ends_at_its_ring_though_its_execution_is_open() -> None:
    world = World(settings=with_fan_out())
    began = asyncio.get_running_loop().time()
    run = await world.play(a_map(), [{"ms": 1_000, "out": n} for n in range(60)])
    assert run.status is Status.SUCCEEDED
    assert asyncio.get_running_loop().time() - began < 1.0 * 60 / 20 + CLOSING_SECONDS


@virtually
async def test_a_map_with_items_that_left_no_record_ends_within_five_seconds_of_its_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(settings=with_fan_out())

    async def dies(event: Any) -> BatchEnd:
        raise RuntimeError("the function is killed")

    monkeypatch.setattr(world.fan_out.inner, "work", dies)
    began = asyncio.get_running_loop().time()
    run = await world.play(a_map(), [{"out": n} for n in range(60)])
    assert (run.status, run.output) == (Status.SUCCEEDED, [None] * 60)
    assert asyncio.get_running_loop().time() - began < CLOSING_SECONDS + 5


def a_game() -> Game:
    """A run whose map goes on elsewhere beside a step at work."""
    flow = a_flow(
        {
            "each": {"map": {"over": "${input}", "task": "core.echo"}, "timeout": "60s"},
            "beside": {},
            "after": {"needs": ["beside"]},
        },
        timeout="30d",
    )
    limits = replace(LIMITS, fan_out={"model": 240.0}, inline_map_items=1)
    game = Game(flow, limits=limits, input=[1, 2, 3]).claim()
    assert game.statuses["each"] == "waiting"
    return game


def test_what_became_ready_during_a_pause_starts_at_the_resumption_though_a_map_is_open() -> None:
    game = a_game()
    game.after(1).feed(PauseAsked(by="Ada"))
    game.after(1).succeed("beside")
    game.after(60).feed(ResumeAsked(by="Ada"))
    assert runnable(game.run)
    verdict = on_wake(a_wake_for(game.run), game.run, game.now, game.limits, receives=1)
    assert verdict == PollMaps(("each",), due_besides=True)
    # Whoever only looks at the map takes nothing of that away.
    game.feed(MapStillRunning(step="each", attempt=1))
    assert runnable(game.run)
    assert on_wake(a_wake_for(game.run), game.run, game.now, game.limits, receives=1) == Claim()
    assert game.claim().started == [("after", 1)]


def test_after_its_ring_a_map_is_looked_at_soon_and_then_as_before() -> None:
    game = a_game().succeed("beside").succeed("after")
    assert game.run.status is Status.WAITING
    pauses = []
    for number in range(5):
        game.feed(MapStillRunning(step="each", attempt=1, signalled=number == 0))
        pauses.append(game.run.due_at - game.now)
        game.now = game.run.due_at
    assert pauses == [*AFTER_SIGNAL, 2 * FIRST_POLL, 4 * FIRST_POLL]


def test_a_ring_that_comes_while_the_holder_looks_comes_again() -> None:
    game = a_game()
    wake = replace(a_wake_for(game.run), map_step="each")
    assert on_wake(wake, game.run, game.now, game.limits, receives=1) == NotifyHolder("each")
    game.feed(MapCompletionSignalled(step="each"))
    assert isinstance(on_wake(wake, game.run, game.now, game.limits, receives=1), Defer)
    # The holder's look came a moment too early; the ring is told it once more.
    game.feed(MapStillRunning(step="each", attempt=1))
    assert game.run.steps["each"].due_at == game.now + AFTER_SIGNAL[0]
    assert on_wake(wake, game.run, game.now, game.limits, receives=1) == NotifyHolder("each")


def a_wake_for(run: Run) -> Any:
    return replace(a_wake(), run_id=run.id, submission=run.submission)


@pytest.mark.parametrize("due_in", [0, -60])
def test_a_handed_over_run_beside_a_map_that_is_due_at_the_same_time_is_claimed(due_in: int) -> None:
    at = START + timedelta(seconds=due_in)
    each = StepState(status=StepStatus.WAITING, attempts=1, started_at=START, due_at=at, map=ELSEWHERE)
    run = a_run(
        1, status=Status.WAITING, version=3, epoch=1, due_at=at - timedelta(milliseconds=1), steps={"each": each}
    )
    assert on_wake(a_wake_for(run), run, START, LIMITS, receives=1) == PollMaps(("each",), due_besides=True)
