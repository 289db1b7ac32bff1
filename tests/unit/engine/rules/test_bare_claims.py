"""A claim that is committed before anything is decided: each death then counts (R7)."""

from __future__ import annotations

from dataclasses import replace

from fanfold.engine.record.run import Reason, Slot, Status
from fanfold.engine.rules.effects import ReleaseSlot
from fanfold.engine.rules.events import Claimed, RecordReloaded
from tests.support.game import LIMITS, Game, a_flow
from tests.support.world import journal_of

TWO = a_flow({"a": {"input": "${input.deep}"}, "b": {"needs": ["a"]}})


def bare(game: Game) -> Game:
    """Another worker claims the run, commits that, and decides nothing more."""
    game.goes_on = False
    game.claim()
    game.goes_on = True
    return game


def test_it_takes_the_run_and_gives_the_slot_back_and_evaluates_nothing() -> None:
    game = bare(Game(TWO, slot=Slot(shard=0, hour=1)))
    assert (game.run.status, game.run.epoch, game.run.crashes) == (Status.RUNNING, 1, 0)
    assert (dict(game.run.steps), game.started) == ({}, [])
    assert [type(effect) for effect in game.effects] == [ReleaseSlot]
    assert journal_of(game.run) == ["run.accepted", "run.claimed"]


def test_what_follows_is_decided_next_and_is_what_a_claim_at_once_would_have_begun() -> None:
    game = bare(Game(TWO))
    game.notice()
    assert game.started == [("a", 1)]
    assert game.succeed("a").started == [("b", 1)]


def test_five_deaths_before_anything_is_decided_end_the_run_and_evaluate_nothing() -> None:
    game = bare(Game(TWO))
    for count in range(1, 5):
        bare(game.after(66))
        assert (game.run.status, game.run.crashes) == (Status.RUNNING, count)
    bare(game.after(66))
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED)
    assert game.run.error is not None
    assert game.run.error.message == "5 workers died in a row"


def test_it_interrupts_what_the_dead_worker_had_started() -> None:
    game = bare(Game(TWO).claim().after(66))
    state = game.run.steps["a"]
    assert (str(state.status), state.attempts, state.interruptions, game.run.crashes) == ("retrying", 1, 1, 1)
    assert game.notice().started == [("a", 2)]


def test_at_most_once_holds_for_it_too() -> None:
    flow = a_flow({"a": {"retry": {"on_interrupt": "fail"}}})
    game = bare(Game(flow).claim().after(66))
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)


def test_a_run_to_be_cancelled_is_cancelled_at_once_for_that_takes_no_expression() -> None:
    game = bare(Game(TWO).claim().cancel().after(66))
    assert (game.run.status, game.statuses) == (Status.CANCELLED, {"a": "cancelled", "b": "pending"})


def test_a_claim_decided_twice_changes_nothing() -> None:
    game = bare(Game(TWO))
    claimed = game.run
    game.feed(Claimed(owner=claimed.owner or "", worker="w1"), RecordReloaded())
    assert game.run.epoch == 1


def test_the_limit_is_the_settings() -> None:
    game = bare(Game(TWO, limits=replace(LIMITS, max_crashes=2)))
    bare(bare(game.after(66)).after(66))
    assert game.run.reason is Reason.ATTEMPTS_EXHAUSTED
