"""Run and queue timeouts, hand-over before the end of a worker's time (R11), and clocks that differ."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules.scheduling import next_timer
from tests.support.clock import START
from tests.support.game import LIMITS, Game, a_flow
from tests.support.world import journal_of


def test_a_run_that_is_not_started_within_its_queue_timeout_expires_at_its_claim() -> None:
    game = Game(a_flow({"a": {}}, queue_timeout="1m")).after(60).claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.EXPIRED_IN_QUEUE)
    assert (game.started, game.slots, game.run.slot) == ([], 1, None)
    assert journal_of(game.run) == ["run.accepted", "run.failed"]
    assert game.run.started_at is None


def test_once_it_is_started_the_queue_timeout_is_void() -> None:
    game = Game(a_flow({"a": {}}, queue_timeout="1m")).after(59.999).claim().after(30).look()
    assert game.run.status is Status.RUNNING
    assert game.crash().run.status is Status.RUNNING


def test_a_run_whose_timeout_passed_in_the_queue_times_out_at_its_claim() -> None:
    game = Game(a_flow({"a": {}}, timeout="1m")).after(60).claim()
    assert (game.run.status, game.run.reason, game.slots) == (Status.FAILED, Reason.TIMED_OUT, 1)


def test_the_sweeper_settles_queued_deadlines_only_a_minute_after_they_passed() -> None:
    game = Game(a_flow({"a": {}}, queue_timeout="1m")).after(119).sweep()
    assert game.run.version == 1
    game.after(1).sweep()
    assert (game.run.status, game.run.reason, game.slots) == (Status.FAILED, Reason.EXPIRED_IN_QUEUE, 1)
    before = game.run
    assert game.sweep().run is before


def test_the_sweeper_does_nothing_to_a_run_that_is_held() -> None:
    game = Game(a_flow({"a": {}}, queue_timeout="1m")).claim()
    before = game.run
    assert game.after(3600).sweep().run.steps == before.steps
    assert game.run.status is Status.RUNNING


def test_a_run_times_out_while_it_runs() -> None:
    game = Game(a_flow({"a": {}, "b": {"needs": ["a"]}}, timeout="60s")).claim()
    assert next_timer(game.run) == START + timedelta(seconds=60)
    game.after(60).look()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.TIMED_OUT)
    assert game.statuses == {"a": "cancelled", "b": "pending"}


def test_the_timeout_counts_from_acceptance_through_every_crash() -> None:
    game = Game(a_flow({"a": {}}, timeout="2m")).after(30).claim().crash().after(24).look()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.TIMED_OUT)


def test_an_ended_run_says_until_when_its_row_lives() -> None:
    game = Game(a_flow({"a": {}})).claim().after(1).succeed("a")
    assert game.run.finished_at == START + timedelta(seconds=1)
    assert game.run.expires_at == game.run.finished_at + LIMITS.retention


# --- hand-over ---------------------------------------------------------------------------------


def with_stop_before(game: Game, seconds: float) -> Game:
    game.limits = replace(LIMITS, stop_before=START + timedelta(seconds=seconds))
    return game


def test_a_step_that_does_not_fit_is_not_started_and_the_run_is_handed_over_at_once() -> None:
    game = with_stop_before(Game(a_flow({"a": {}, "b": {"needs": ["a"]}})), 100).claim().after(41).succeed("a")
    assert (game.run.status, game.run.due_at) == (Status.WAITING, game.now)
    assert game.rings == [game.now]
    assert game.statuses == {"a": "succeeded", "b": "pending"}
    assert journal_of(game.run)[-1] == "run.suspended"
    game.limits = LIMITS
    assert game.claim().started == [("b", 1)]
    assert game.run.epoch == 2


def test_a_step_that_just_fits_is_started() -> None:
    game = with_stop_before(Game(a_flow({"a": {}, "b": {"needs": ["a"]}})), 100).claim().after(40).succeed("a")
    assert game.started == [("b", 1)]


def test_what_runs_is_not_left_alone_for_the_sake_of_what_does_not_fit() -> None:
    flow = a_flow({"a": {}, "long": {}, "b": {"needs": ["a"]}})
    game = with_stop_before(Game(flow), 100).claim().after(50).succeed("a")
    assert (game.run.status, game.started) == (Status.RUNNING, [])
    game.after(5).succeed("long")
    assert game.run.status is Status.WAITING


def test_a_shorter_step_is_started_while_a_longer_one_has_to_wait_for_the_next_worker() -> None:
    flow = a_flow({"a": {}, "short": {"needs": ["a"], "timeout": "10s"}, "long": {"needs": ["a"]}})
    game = with_stop_before(Game(flow), 100).claim().after(50).succeed("a")
    assert game.started == [("short", 1)]
    game.after(5).succeed("short")
    assert game.run.status is Status.WAITING
    game.limits = LIMITS
    assert game.claim().started == [("long", 1)]


def test_a_retry_that_does_not_fit_is_handed_over_too() -> None:
    flow = a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "2s", "jitter": "none"}}})
    game = with_stop_before(Game(flow), 100).claim().after(50).fail("a")
    assert game.run.status is Status.RUNNING
    game.after(2).look()
    assert (game.run.status, game.run.due_at) == (Status.WAITING, game.now)


def test_at_the_horizon_an_idle_run_is_let_go_until_its_timer() -> None:
    flow = a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "4s", "jitter": "none"}, "timeout": "1s"}})
    game = with_stop_before(Game(flow), 10).claim().after(8).fail("a")
    assert game.run.status is Status.RUNNING
    game.after(2).look()
    assert (game.run.status, game.run.due_at) == (Status.WAITING, START + timedelta(seconds=12))


def test_a_run_that_can_only_end_is_ended_even_past_the_horizon() -> None:
    game = with_stop_before(Game(a_flow({"a": {}})), 100).claim().after(200).succeed("a")
    assert game.run.status is Status.SUCCEEDED


def test_a_step_that_is_skipped_needs_no_time() -> None:
    flow = a_flow({"a": {}, "b": {"needs": ["a"], "when": "${`false`}"}})
    game = with_stop_before(Game(flow), 100).claim().after(99).succeed("a")
    assert game.run.status is Status.SUCCEEDED


def test_a_claim_without_time_for_anything_lets_go_in_the_same_write() -> None:
    game = with_stop_before(Game(a_flow({"a": {}})), 0).claim()
    assert (game.run.status, game.run.version, game.run.due_at) == (Status.WAITING, 2, START)
    assert (game.slots, game.rings) == (1, [START + timedelta(seconds=5)])


# --- clocks ------------------------------------------------------------------------------------


def test_time_never_runs_backwards_in_a_journal_even_when_a_clock_does() -> None:
    game = Game(a_flow({"a": {}, "b": {"needs": ["a"]}})).claim().after(-4).succeed("a")
    assert game.run.journal[-1].at == START
    assert game.run.lease_until == START + LIMITS.lease
