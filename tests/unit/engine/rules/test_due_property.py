"""Whatever has happened to a run: what a claim would move on is due by then, and its wake claims (R4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fanfold.engine.errors import CallerError
from fanfold.engine.record.run import Run, Status, StepStatus
from fanfold.engine.rules.events import (
    MapCompletionSignalled,
    MapEnded,
    MapStillRunning,
    PauseAsked,
    RecordReloaded,
    RedriveAsked,
    ResumeAsked,
)
from tests.support.game import LIMITS, Game, a_flow
from tests.support.wrong_due import wrong_due

ELSEWHERE = replace(LIMITS, fan_out={"model": 240.0}, inline_map_items=1)
EACH = {"map": {"over": "${input}", "task": "core.echo"}, "timeout": "60s"}
STEPS: dict[str, dict[str, Any]] = {
    "task": {"retry": {"max_attempts": 3, "backoff": "20s", "jitter": "none"}, "on_failure": "continue"},
    "each": EACH,
    "timer": {"wait": {"for": "40s"}},
    "gate": {"wait": {"signal": "go", "timeout": "90s"}, "on_failure": "continue"},
    "after": {"needs": ["task"], "join": "settled", "retry": {"max_attempts": 2, "backoff": "1s"}},
    "more": {"wait": {"for": "15s"}, "needs": ["timer"]},
    "last": {"needs": ["each", "gate"], "join": "any"},
    "refuse": {"fail": {"message": "no more"}, "needs": ["after", "more"], "join": "settled"},
}
BY_OTHERS = (4, 5, 6, 8)
"""The moves that the run's holder does not make."""


@st.composite
def games(draw: st.DrawFn) -> tuple[Game, list[int]]:
    """A run of some of these steps, and a hand that is about to move it."""
    names = draw(st.lists(st.sampled_from(list(STEPS)), min_size=1, unique=True))
    steps = {
        name: {**step, "needs": [need for need in step.get("needs", ()) if need in names]}
        for name, step in STEPS.items()
        if name in names
    }
    timeout = draw(st.sampled_from(["2m", "1h"]))
    game = Game(a_flow(steps, timeout=timeout), limits=ELSEWHERE, input=[1, 2, 3])
    return game, draw(st.lists(st.integers(0, 11), max_size=25))


def running(run: Run) -> list[str]:
    return [name for name, state in run.steps.items() if state.status is StepStatus.RUNNING]


def open_maps(run: Run) -> list[tuple[str, int]]:
    return [(n, s.attempts) for n, s in run.steps.items() if s.status is StepStatus.WAITING and s.map is not None]


def move(game: Game, number: int) -> None:
    """One thing that may happen to a run as it stands; what can't happen now, does not."""
    run = game.run
    held = run.status is Status.RUNNING
    match number:
        case 0 if run.status is Status.QUEUED or (run.status is Status.WAITING and run.due_at <= game.now):
            game.claim()
        case 1 if held and running(run):
            game.succeed(running(run)[0])
        case 2 if held and running(run):
            game.fail(running(run)[-1])
        case 3 if run.status is Status.PAUSED and running(run):
            game.succeed(running(run)[0])
        case 4:
            game.signal("go", 1)
        case 5:
            game.feed(PauseAsked(by="Ada"))
        case 6:
            game.feed(ResumeAsked(by="Ada"))
        case 7:
            for name, attempt in open_maps(run):
                game.feed(MapStillRunning(step=name, attempt=attempt, signalled=bool(attempt % 2)))
        case 8 if held:
            for name, _ in open_maps(run):
                game.feed(MapCompletionSignalled(step=name))
        case 9 if held:
            for name, attempt in open_maps(run):
                game.feed(MapEnded(step=name, attempt=attempt, output=[1], failed=0))
        case 10 if run.terminal and run.status is not Status.SUCCEEDED:
            game.feed(RedriveAsked(by="Ada"))
        case 11 if held:
            game.look()
    if number in BY_OTHERS and game.run.status is Status.RUNNING:
        game.feed(RecordReloaded())  # the holder's next put is refused, and it goes on from what stands
    if game.run.status is Status.WAITING and number == 0:
        game.now = max(game.now, game.run.due_at)


@settings(max_examples=1_000, deadline=None)
@given(games(), st.lists(st.sampled_from([0, 0.5, 3, 20, 60, 400]), min_size=25, max_size=25))
def test_what_a_claim_would_move_on_is_due_by_then_and_its_wake_claims(
    given_game: tuple[Game, list[int]], pauses: list[float]
) -> None:
    game, moves = given_game
    game.claim()
    for number, seconds in zip(moves, pauses, strict=False):
        game.after(seconds)
        try:
            move(game, number)
        except CallerError:
            continue
        assert wrong_due(game.run, game.workflow, game.limits, {}) is None
