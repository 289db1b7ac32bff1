"""When a failed attempt is made again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanfold.engine.language.calling import Jitter, RetryPolicy
from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules.retry import LONGEST_ASKED, delay
from tests.support.clock import START
from tests.support.game import Game, a_flow
from tests.support.world import journal_of


def seconds(policy: RetryPolicy, failures: int, chance: float = 0.999999, after: float | None = None) -> float:
    return delay(policy, failures=failures, chance=chance, after_seconds=after).total_seconds()


def test_without_jitter_the_delay_doubles_up_to_its_bound() -> None:
    policy = RetryPolicy(max_attempts=9, backoff_seconds=1, factor=2, max_backoff_seconds=10, jitter=Jitter.NONE)
    assert [seconds(policy, n) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize("chance", [0.0, 0.25, 0.5, 0.999])
def test_full_jitter_takes_a_part_of_the_backoff(chance: float) -> None:
    policy = RetryPolicy(max_attempts=9, backoff_seconds=8, factor=1)
    assert seconds(policy, 1, chance) == pytest.approx(8 * chance, abs=0.001)


def test_a_hundredth_failure_at_the_greatest_factor_is_still_a_number() -> None:
    policy = RetryPolicy(max_attempts=100, backoff_seconds=60, factor=100, jitter=Jitter.NONE)
    assert seconds(policy, 99) == 60


def test_what_the_task_asks_for_goes_before_the_backoff_within_a_day() -> None:
    policy = RetryPolicy(max_attempts=9, backoff_seconds=8)
    assert seconds(policy, 1, after=30) == 30
    assert seconds(policy, 1, after=0) == 0
    assert seconds(policy, 1, after=-5) == 0
    for endless in (10.0**9, 1e300, float("inf")):
        assert delay(policy, failures=1, chance=0.5, after_seconds=endless) == LONGEST_ASKED


def test_a_delay_is_whole_milliseconds_so_that_a_record_can_hold_it() -> None:
    assert delay(RetryPolicy(), failures=1, chance=0.1234567, after_seconds=None) == timedelta(milliseconds=123)
    assert delay(RetryPolicy(), failures=1, chance=0.5, after_seconds=0.0015) == timedelta(milliseconds=2)
    game = Game(a_flow({"a": {"retry": {"max_attempts": 2}}})).claim().fail("a", after=0.12345)
    assert game.run.steps["a"].due_at == START + timedelta(milliseconds=123)


def test_a_short_retry_is_sat_out_holding_the_run() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "4s", "jitter": "none"}}})).claim().fail("a")
    assert game.run.status is Status.RUNNING
    assert game.statuses == {"a": "retrying"}
    assert game.after(3.999).look().started == []
    assert game.after(0.001).look().started == [("a", 2)]


def test_a_long_retry_lets_the_run_go_and_rings_when_it_is_due() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "30s", "jitter": "none"}}})).claim().fail("a")
    assert game.run.status is Status.WAITING
    assert game.run.due_at == START + timedelta(seconds=30)
    assert game.rings == [game.run.due_at]
    game.after(30).claim()
    assert (game.run.epoch, game.started) == (2, [("a", 2)])
    assert game.run.due_at is None


def test_a_retry_due_later_than_a_message_can_be_delayed_sends_none() -> None:
    policy = {"max_attempts": 2, "backoff": "16m", "max_backoff": "16m", "jitter": "none"}
    game = Game(a_flow({"a": {"retry": policy}})).claim().fail("a")
    assert game.run.due_at == START + timedelta(minutes=16)
    assert game.rings == []
    policy["backoff"] = policy["max_backoff"] = "15m"
    assert len(Game(a_flow({"a": {"retry": policy}})).claim().fail("a").rings) == 1


def test_while_anything_runs_a_long_retry_does_not_let_the_run_go() -> None:
    flow = a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "30s", "jitter": "none"}}, "b": {}})
    game = Game(flow).claim().fail("a")
    assert game.run.status is Status.RUNNING
    game.after(10).succeed("b")
    assert (game.run.status, game.run.due_at) == (Status.WAITING, START + timedelta(seconds=30))


def test_the_last_failure_fails_the_step_with_its_error() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 3, "backoff": "1s", "jitter": "none"}}})).claim()
    game.fail("a").after(1).look().fail("a").after(2).look().fail("a")
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    state = game.run.steps["a"]
    assert (state.attempts, state.failures, state.due_at) == (3, 3, None)
    assert journal_of(game.run) == [
        "run.accepted",
        "run.claimed",
        "step.started a",
        "step.retry_scheduled a",
        "step.started a",
        "step.retry_scheduled a",
        "step.started a",
        "step.failed a",
        "run.failed",
    ]


def test_fail_is_not_tried_again_whatever_the_policy_says() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 9}}})).claim().fail("a", retryable=False)
    assert game.run.status is Status.FAILED


def test_retry_of_a_task_without_a_policy_fails_the_step() -> None:
    game = Game(a_flow({"a": {}})).claim().fail("a", after=1)
    assert game.run.status is Status.FAILED


def test_an_end_that_comes_after_its_step_was_set_to_retry_changes_nothing() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "4s"}}})).claim().fail("a")
    before = game.run
    assert game.fail("a").succeed("a").run is before


def test_a_run_is_let_go_no_longer_than_until_its_deadline() -> None:
    flow = a_flow({"a": {"retry": {"max_attempts": 2, "backoff": "60s", "jitter": "none"}}}, timeout="60s")
    game = Game(flow).claim().after(20).fail("a")
    assert game.run.due_at == game.run.deadline
    game.after(40).claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.TIMED_OUT)
    assert game.statuses == {"a": "cancelled"}


def test_a_step_that_succeeds_after_a_failure_shows_no_error() -> None:
    game = Game(a_flow({"a": {"task": "core.echo", "retry": {"max_attempts": 2}}}))
    game.claim()
    game.fail("a")
    game.after(3).look()
    game.succeed("a")
    assert game.run.status is Status.SUCCEEDED
    assert game.run.steps["a"].error is None


def undisturbed(policy: RetryPolicy, failures: int) -> timedelta:
    return delay(policy, failures=failures, chance=0.0, after_seconds=None)


policies = st.builds(
    RetryPolicy,
    max_attempts=st.just(10_000),
    backoff_seconds=st.sampled_from([0.001, 0.5, 1.0, 60.0, 86_400.0]),
    factor=st.sampled_from([1.0, 1.000001, 1.01, 1.1, 1.5, 2.0, 3.7, 10.0, 100.0]) | st.floats(1.0, 10.0),
    max_backoff_seconds=st.sampled_from([86_400.0, 30 * 86_400.0]),
    jitter=st.just(Jitter.NONE),
)


@given(policy=policies, failures=st.integers(1, 200) | st.sampled_from([62, 63, 64]))
def test_delays_grow_by_the_factor_up_to_the_longest_and_never_leap(policy: RetryPolicy, failures: int) -> None:
    now, then = undisturbed(policy, failures), undisturbed(policy, failures + 1)
    grain = timedelta(milliseconds=1)
    assert now <= then <= now * policy.factor + grain * (policy.factor + 1)
    assert then <= timedelta(seconds=policy.max_backoff_seconds) + grain


def test_a_factor_just_above_one_has_not_come_to_the_longest_delay_at_the_64th_failure() -> None:
    policy = RetryPolicy(backoff_seconds=1.0, factor=1.01, max_backoff_seconds=86_400.0, jitter=Jitter.NONE)
    assert [undisturbed(policy, n).total_seconds() for n in (63, 64, 65)] == [
        round(1.01 ** (n - 1), 3) for n in (63, 64, 65)
    ]
    assert undisturbed(policy, 10_000) == timedelta(days=1)
