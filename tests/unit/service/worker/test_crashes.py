"""What a worker's death does to its run (R7)."""

from __future__ import annotations

import pytest

from fanfold.engine.errors import IllegalTransition
from fanfold.engine.record.run import Reason, Status
from tests.support.game import Game, a_flow
from tests.support.world import journal_of

ONE = a_flow({"a": {}})


def test_what_a_dead_worker_had_started_is_interrupted_and_begun_again() -> None:
    game = Game(ONE).claim().crash()
    assert (game.run.epoch, game.run.crashes, game.started) == (2, 1, [("a", 2)])
    state = game.run.steps["a"]
    assert (state.attempts, state.failures, state.interruptions) == (2, 0, 1)
    assert journal_of(game.run)[-3:] == ["run.claimed", "step.interrupted a", "step.started a"]


def test_an_interruption_is_no_failure_and_costs_no_attempt_of_the_policy() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "4s"}}})).claim().crash().crash()
    game.fail("a").after(4).look()
    assert game.run.status is Status.RUNNING
    assert game.fail("a").run.status is Status.FAILED


def test_a_finished_step_is_not_begun_again_by_the_next_worker() -> None:
    game = Game(a_flow({"a": {}, "b": {"needs": ["a"]}})).claim().succeed("a", out=7).crash()
    assert game.started == [("b", 2)]
    assert game.run.steps["a"].output == 7


def test_the_fifth_crash_in_a_row_without_progress_ends_the_run() -> None:
    game = Game(ONE).claim()
    for count in range(1, 5):
        game.crash()
        assert (game.run.status, game.run.crashes) == (Status.RUNNING, count)
    game.crash()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED)
    assert game.started == []
    assert game.statuses == {"a": "cancelled"}


def test_a_settled_step_is_progress_and_crashes_are_counted_anew() -> None:
    steps = {f"s{n}": {"needs": [f"s{n - 1}"] if n else []} for n in range(8)}
    game = Game(a_flow(steps)).claim()
    for n in range(7):
        game.crash()
        assert game.run.crashes == 1
        game.succeed(f"s{n}")
        assert game.run.crashes == 0
    assert game.succeed("s7").run.status is Status.SUCCEEDED


def test_a_skipped_step_counts_as_settled() -> None:
    flow = a_flow({"a": {"on_failure": "continue"}, "b": {"needs": ["a"]}, "c": {}})
    game = Game(flow).claim().crash().fail("a", retryable=False)
    assert (game.statuses["b"], game.run.crashes) == ("skipped", 0)


def test_a_clean_release_is_no_crash_and_zeroes_the_count() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 9, "backoff": "30s", "jitter": "none"}}})).claim()
    game.crash().crash()
    assert game.run.crashes == 2
    game.fail("a")
    assert (game.run.status, game.run.crashes) == (Status.WAITING, 0)
    game.after(30).claim()
    assert (game.run.crashes, game.run.steps["a"].interruptions) == (0, 2)


def test_renewals_retries_and_progress_reports_do_not_zero_the_count() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 9, "backoff": "1s", "jitter": "none"}}})).claim().crash()
    game.renew().emit("a", 1).fail("a").after(1).look()
    assert game.run.crashes == 1


def test_five_interruptions_of_one_step_end_a_run_that_makes_progress_elsewhere() -> None:
    steps = {"poison": {}} | {f"s{n}": {"needs": [f"s{n - 1}"] if n else []} for n in range(9)}
    game = Game(a_flow(steps)).claim()
    for n in range(4):
        game.succeed(f"s{n}").crash()
        assert (game.run.status, game.run.crashes) == (Status.RUNNING, 1)
    game.succeed("s4").crash()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED)
    assert game.run.error is not None
    assert game.run.error.message == "step 'poison' was interrupted 5 times"


def test_crashes_between_steps_count_too() -> None:
    flow = a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "5s", "jitter": "none"}}})
    game = Game(flow).claim().fail("a")
    game.crash()
    assert (game.run.crashes, game.run.steps["a"].interruptions, game.started) == (1, 0, [("a", 2)])


def test_at_most_once_an_interrupted_attempt_is_not_repeated() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 3, "on_interrupt": "fail"}}})).claim().crash()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert game.run.error is not None
    assert game.run.error.type == "interrupted"
    assert game.run.steps["a"].attempts == 1
    assert game.started == []


def test_at_most_once_under_continue_the_run_goes_on_without_it() -> None:
    flow = a_flow(
        {
            "a": {"retry": {"on_interrupt": "fail"}, "on_failure": "continue"},
            "b": {},
            "c": {"needs": ["a"], "join": "settled"},
        }
    )
    game = Game(flow).claim().crash()
    assert game.statuses == {"a": "failed", "b": "running", "c": "running"}
    assert game.started == [("b", 2), ("c", 1)]


def test_at_most_once_the_other_steps_of_a_run_that_fails_by_it_are_cancelled() -> None:
    game = Game(a_flow({"b": {}, "a": {"retry": {"on_interrupt": "fail"}}, "c": {}})).claim().crash()
    assert game.run.status is Status.FAILED
    assert game.statuses == {"b": "cancelled", "a": "failed", "c": "cancelled"}


def test_a_step_that_failed_and_waits_for_its_retry_is_not_interrupted_by_a_crash() -> None:
    retry = {"max_attempts": 3, "backoff": "5s", "jitter": "none", "on_interrupt": "fail"}
    game = Game(a_flow({"a": {"retry": retry}})).claim().fail("a").crash()
    assert game.started == [("a", 2)]
    assert game.run.steps["a"].interruptions == 0


def test_a_run_under_a_valid_lease_is_not_for_the_taking() -> None:
    game = Game(ONE).claim().after(64)
    with pytest.raises(IllegalTransition):
        game.claim()


def test_a_claim_decided_again_changes_nothing() -> None:
    game = Game(ONE).claim()
    before = game.run
    game._claims = 0
    assert game.claim().run is before
