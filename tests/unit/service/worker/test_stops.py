"""What an order to stop does to a run in hand: nothing counts, and the next worker goes on at once (R7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules.events import AttemptSucceeded, StopRequested
from tests.support.clock import START
from tests.support.game import LIMITS, Game, a_flow
from tests.support.world import journal_of

ONE = a_flow({"a": {}})
ONCE = {"retry": {"on_interrupt": "fail"}}


def stop(game: Game) -> Game:
    """The holder has to stop, and has broken off what ran."""
    game.feed(StopRequested())
    return game


def test_what_is_broken_off_is_due_now_its_wake_is_rung_and_nothing_is_counted() -> None:
    game = stop(Game(ONE).claim().after(10))
    state = game.run.steps["a"]
    assert (game.run.status, game.run.due_at, game.run.crashes) == (Status.WAITING, game.now, 0)
    assert game.rings == [game.now]
    assert (state.failures, state.interruptions, state.due_at) == (0, 0, game.now)
    assert journal_of(game.run)[-2:] == ["step.interrupted a", "run.suspended"]
    assert not any(entry.tells_of_a_crash for entry in game.run.journal)
    assert game.claim().started == [("a", 2)]


def test_however_often_a_step_is_broken_off_it_ends_no_run() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 2}}})).claim()
    for _ in range(30):
        stop(game.after(10)).claim()
    assert (game.run.steps["a"].interruptions, game.run.crashes) == (0, 0)
    assert game.succeed("a").run.status is Status.SUCCEEDED


def test_deaths_before_and_after_it_go_on_being_counted() -> None:
    game = Game(ONE).claim().crash().crash()
    stop(game)
    assert (game.run.crashes, game.run.steps["a"].interruptions) == (2, 2)
    game.claim().crash()
    assert (game.run.crashes, game.run.steps["a"].interruptions) == (3, 3)


def test_at_most_once_a_step_that_is_broken_off_fails() -> None:
    game = stop(Game(a_flow({"a": ONCE, "b": {}})).claim())
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert game.run.error is not None
    assert game.run.error.type == "interrupted"
    assert game.run.error.message.endswith("the worker had to stop during the attempt, and on_interrupt is fail")


def test_at_most_once_under_continue_the_run_goes_on_without_it() -> None:
    flow = a_flow({"a": {**ONCE, "on_failure": "continue"}, "b": {"needs": ["a"], "join": "settled"}})
    game = stop(Game(flow).claim())
    assert (game.run.status, game.statuses["a"]) == (Status.WAITING, "failed")
    assert game.claim().started == [("b", 1)]


def test_what_ended_meanwhile_is_recorded_with_it_and_decided_by_the_next_worker() -> None:
    game = Game(a_flow({"a": {}, "b": {"needs": ["a"]}})).claim()
    game.feed(AttemptSucceeded(step="a", attempt=1, output=1), StopRequested())
    assert (game.run.status, game.statuses) == (Status.WAITING, {"a": "succeeded", "b": "pending"})
    assert game.claim().started == [("b", 1)]


def test_a_run_to_be_cancelled_is_cancelled() -> None:
    game = stop(Game(ONE).claim().cancel())
    assert game.run.status is Status.CANCELLED


def test_a_paused_run_stays_paused_and_goes_on_when_it_is_resumed() -> None:
    game = stop(Game(ONE).claim().pause())
    assert (game.run.status, game.run.lease_until, game.rings) == (Status.PAUSED, None, [])
    game.after(100).resume()
    assert (game.run.status, game.run.crashes) == (Status.WAITING, 0)
    assert game.claim().started == [("a", 2)]


def test_an_open_wait_stays_open() -> None:
    game = stop(Game(a_flow({"a": {}, "w": {"wait": {"for": "1h"}}})).claim().after(5))
    assert game.run.due_at == game.now
    assert game.claim().run.steps["w"].due_at == START + timedelta(hours=1)


# --- hand-overs that come to nothing ------------------------------------------------------------


def out_of_time(game: Game, **given: object) -> Game:
    """The run is claimed by a worker that has no time for any step."""
    game.limits = replace(LIMITS, stop_before=game.now, **given)  # type: ignore[arg-type]
    return game.claim()


def test_hand_overs_that_begin_and_end_nothing_count_until_the_run_ends() -> None:
    game = Game(ONE)
    for count, later in ((1, 5), (2, 10), (3, 20), (4, 40)):
        out_of_time(game.after(1))
        assert (game.run.status, game.run.due_at, game.run.crashes) == (Status.WAITING, game.now, count)
        assert game.rings == [game.now + timedelta(seconds=later)]
    out_of_time(game)
    assert (game.run.status, game.run.reason, game.rings) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED, [])


def test_a_poison_that_is_handed_over_between_its_deaths_ends_all_the_same() -> None:
    game = Game(ONE).claim().crash().crash()
    out_of_time(game.after(66))
    assert game.run.crashes == 4
    game.limits = LIMITS
    assert game.claim().crash().run.reason is Reason.ATTEMPTS_EXHAUSTED


def test_a_hand_over_after_something_ended_counts_anew() -> None:
    game = Game(a_flow({"a": {}, "b": {"needs": ["a"]}})).claim().crash()
    game.limits = replace(LIMITS, stop_before=game.now + timedelta(seconds=61))
    game.after(10).succeed("a")
    assert (game.run.status, game.run.crashes) == (Status.WAITING, 0)


def test_a_worker_that_was_told_to_stop_hands_over_as_often_as_it_likes() -> None:
    game = Game(ONE)
    for _ in range(30):
        out_of_time(game, stopping=True)
        assert (game.run.status, game.run.crashes) == (Status.WAITING, 0)


# --- steps longer than any worker's time --------------------------------------------------------


def test_a_step_longer_than_any_worker_of_its_class_fails_and_says_so() -> None:
    flow = a_flow({"a": {"timeout": "600s"}})
    game = Game(flow, limits=replace(LIMITS, stop_before=START + timedelta(seconds=270), longest_step={"model": 240.0}))
    game.claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert game.run.error is not None
    assert game.run.error.type == "timeout_over_limit"
    assert "an attempt may take 600 s, and class model has 240 s" in game.run.error.message


def test_so_does_a_map_that_stays_with_its_worker() -> None:
    flow = a_flow({"a": {"map": {"over": "${input}", "task": "core.echo"}, "timeout": "600s"}})
    limits = replace(LIMITS, stop_before=START + timedelta(seconds=270), longest_step={"model": 240.0})
    game = Game(flow, limits=limits, input=[1]).claim()
    assert game.run.error is not None
    assert game.run.error.type == "timeout_over_limit"


def test_a_worker_that_has_used_time_up_leaves_it_to_one_that_begins_with_it() -> None:
    """A class may promise less than its functions have."""
    flow = a_flow({"a": {}, "b": {"needs": ["a"], "timeout": "600s"}})
    limits = replace(LIMITS, stop_before=START + timedelta(seconds=610), longest_step={"model": 240.0})
    game = Game(flow, limits=limits).claim().after(30).succeed("a")
    assert (game.run.status, game.rings) == (Status.WAITING, [game.now])
    game.limits = replace(limits, stop_before=game.now + timedelta(seconds=610))
    assert game.claim().started == [("b", 1)]


def test_one_that_begins_with_a_run_fails_each_of_its_steps_that_are_too_long() -> None:
    flow = a_flow({name: {"timeout": "600s", "on_failure": "continue"} for name in ("a", "b")})
    limits = replace(LIMITS, stop_before=START + timedelta(seconds=270), longest_step={"model": 240.0})
    game = Game(flow, limits=limits).claim()
    assert (game.run.status, game.statuses) == (Status.SUCCEEDED, {"a": "failed", "b": "failed"})


def test_a_worker_without_an_end_begins_it_whatever_functions_have() -> None:
    game = Game(a_flow({"a": {"timeout": "600s"}}), limits=replace(LIMITS, longest_step={"model": 240.0})).claim()
    assert game.started == [("a", 1)]


def test_a_worker_told_to_stop_leaves_it_to_others() -> None:
    limits = replace(LIMITS, stop_before=START, longest_step={"model": 240.0}, stopping=True)
    game = Game(a_flow({"a": {"timeout": "600s"}}), limits=limits).claim()
    assert game.run.status is Status.WAITING


def test_under_continue_the_run_goes_on_without_it() -> None:
    flow = a_flow({"a": {"timeout": "600s", "on_failure": "continue"}, "b": {}})
    limits = replace(LIMITS, stop_before=START + timedelta(seconds=270), longest_step={"model": 240.0})
    game = Game(flow, limits=limits).claim()
    assert (game.statuses, game.started) == ({"a": "failed", "b": "running"}, [("b", 1)])
    assert [entry.type for entry in game.run.journal].count(EventType.STEP_FAILED) == 1
