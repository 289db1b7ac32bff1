"""Fail steps: their run ends with their error, at their turn and not before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanfold.engine.language.budget import STEP_BYTES
from fanfold.engine.payload import Json
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Reason, Status
from fanfold.engine.rules.events import AttemptSucceeded, MapYielded
from tests.support.game import Game, a_flow


def refused(message: str, *, input: Json = None, **fail: Any) -> Game:
    """A claimed run whose only step is a fail."""
    return Game(a_flow({"refuse": {"fail": {"message": message, **fail}}}), input=input).claim()


def test_a_run_ends_as_failed_with_the_message_and_the_type_of_its_fail_step() -> None:
    game = refused("order ${input.id} is over ${input.limit}", input={"id": "o-7", "limit": 50}, type="over_limit")
    error = Failure(type="over_limit", message="order o-7 is over 50")
    assert (game.run.status, game.run.reason, game.run.error) == (Status.FAILED, Reason.STEP_FAILED, error)
    assert game.run.steps["refuse"].error == error
    told = [entry.type for entry in game.run.journal][2:]
    assert told == [EventType.STEP_STARTED, EventType.STEP_FAILED, EventType.RUN_FAILED]


def test_without_a_type_the_error_is_called_failed() -> None:
    assert refused("no").run.error == Failure(type="failed", message="no")


@pytest.mark.parametrize(
    ("value", "message"),
    [("as it is", "as it is"), (None, ""), (7, "7"), ({"a": [1, "b"]}, '{"a":[1,"b"]}'), (True, "true")],
)
def test_a_message_that_is_one_expression_is_put_down_as_text(value: Json, message: str) -> None:
    error = refused("${input}", input=value).run.error
    assert error is not None
    assert error.message == message


def test_a_message_that_can_not_be_computed_fails_the_step_as_an_expression() -> None:
    error = refused("${length(input)}", input=7).run.error
    assert error is not None
    assert error.type == "expression_error"


def test_a_message_that_makes_too_much_of_its_value_fails_the_step_as_an_expression() -> None:
    big = ["x" * 1_000_000] * (STEP_BYTES // 2_000_000 + 1)
    error = refused("${input}", input=big).run.error
    assert error is not None
    assert error.type == "expression_error"


def test_what_else_runs_is_cancelled_and_starts_no_more() -> None:
    steps = {"work": {}, "first": {}, "refuse": {"fail": {"message": "no"}, "needs": ["first"]}}
    game = Game(a_flow(steps)).claim().succeed("first")
    assert game.statuses == {"work": "cancelled", "first": "succeeded", "refuse": "failed"}
    assert game.started == []


def test_a_fail_whose_when_is_false_is_skipped_and_its_run_goes_on() -> None:
    steps = {
        "check": {},
        "refuse": {"fail": {"message": "no"}, "needs": ["check"], "when": "${steps.check.output.bad}"},
        "after": {"needs": ["check"]},
    }
    game = Game(a_flow(steps)).claim().succeed("check", out={"bad": False})
    assert game.statuses == {"check": "succeeded", "refuse": "skipped", "after": "running"}
    assert game.succeed("after").run.status is Status.SUCCEEDED


def test_a_fail_may_say_what_went_wrong_before_it() -> None:
    steps = {
        "work": {"on_failure": "continue"},
        "refuse": {"fail": {"message": "work: ${steps.work.error.message}"}, "needs": ["work"], "join": "settled"},
    }
    error = Game(a_flow(steps)).claim().fail("work", retryable=False).run.error
    assert error == Failure(type="failed", message="work: it broke")


def test_a_paused_run_does_not_fail_before_it_is_resumed() -> None:
    steps = {"work": {}, "refuse": {"fail": {"message": "no"}, "needs": ["work"]}}
    game = Game(a_flow(steps)).claim().pause().succeed("work")
    assert game.statuses["refuse"] == "pending"
    assert game.resume().claim().run.error == Failure(type="failed", message="no")


def test_a_run_that_is_to_be_cancelled_is_cancelled_though_its_fail_has_its_turn() -> None:
    steps = {"work": {}, "refuse": {"fail": {"message": "no"}, "needs": ["work"]}}
    game = Game(a_flow(steps)).claim().cancel().succeed("work")
    assert (game.run.status, game.run.error) == (Status.CANCELLED, None)


def test_a_redrive_has_the_fail_step_judge_again() -> None:
    steps = {
        "check": {"on_failure": "continue"},
        "refuse": {"fail": {"message": "no"}, "needs": ["check"], "join": "settled"},
    }
    game = Game(a_flow(steps)).claim().succeed("check")
    game.redrive().claim()
    assert (game.run.status, game.run.try_number) == (Status.FAILED, 2)
    assert game.run.steps["refuse"].attempts == 2


def test_what_happens_to_other_kinds_of_steps_changes_nothing_of_a_fail() -> None:
    steps = {"work": {}, "refuse": {"fail": {"message": "no"}, "needs": ["work"]}}
    game = Game(a_flow(steps)).claim()
    game.feed(AttemptSucceeded(step="refuse", attempt=1, output=1), MapYielded(step="refuse", attempt=1))
    assert game.statuses == {"work": "running", "refuse": "pending"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=1_100),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(value=VALUES, before=st.text("abc $", max_size=20), after=st.text("xyz }", max_size=20))
def test_whatever_its_message_is_made_of_the_run_fails_with_the_first_thousand_characters(
    value: Json, before: str, after: str
) -> None:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A dollar before the expression would make it a text.
    before = before.rstrip("$")
    game = refused(f"{before}${{input}}{after}", input=value)
    assert game.run.error == Failure(type="failed", message=(before + text + after)[:1_000])
