"""Which steps start, which are skipped, and when: needs, join, when, on_failure."""

from __future__ import annotations

import pytest

from fanfold.engine.payload import BlobRef, ValuesMissing
from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules.events import AttemptSucceeded
from tests.support.game import Game, a_flow
from tests.support.world import journal_of

DIAMOND = a_flow(
    {
        "seed": {},
        "left": {"needs": ["seed"]},
        "right": {"needs": ["seed"]},
        "combine": {"needs": ["left", "right"], "input": ["${steps.left.output}", "${steps.right.output}"]},
    },
    output="${steps.combine.output}",
)


def two_then(join: str, **more: object) -> Game:
    """Steps a and b that may fail, and c after both."""
    flow = a_flow(
        {"a": {"on_failure": "continue"}, "b": {"on_failure": "continue"}, "c": {"needs": ["a", "b"], "join": join}}
        | more  # type: ignore[arg-type]
    )
    return Game(flow).claim()


def test_a_claim_starts_every_step_without_needs_in_document_order() -> None:
    game = Game(a_flow({"b": {}, "a": {}, "c": {"needs": ["a"]}})).claim()
    assert game.started == [("b", 1), ("a", 1)]
    assert game.statuses == {"b": "running", "a": "running", "c": "pending"}
    assert list(game.run.steps) == ["b", "a"], "a step that has not begun is not in the record"


def test_a_diamond_starts_each_step_with_the_commit_that_records_its_last_need() -> None:
    game = Game(DIAMOND).claim()
    assert game.started == [("seed", 1)]
    assert game.succeed("seed").started == [("left", 1), ("right", 1)]
    assert game.succeed("left", out=1).started == []
    assert game.succeed("right", out=2).inputs == {"combine": [1, 2]}
    game.succeed("combine", out="done")
    assert (game.run.status, game.run.output) == (Status.SUCCEEDED, "done")
    assert game.run.version == 6


def test_results_that_arrive_together_are_one_decision_and_the_join_fires_once() -> None:
    game = Game(DIAMOND).claim().succeed("seed").succeed("left", "right")
    assert game.started == [("combine", 1)]
    assert game.run.version == 4


def test_join_succeeded_skips_at_the_first_need_that_did_not_succeed() -> None:
    game = two_then("succeeded").fail("a", retryable=False)
    assert game.statuses == {"a": "failed", "b": "running", "c": "skipped"}
    assert game.succeed("b").run.status is Status.SUCCEEDED


def test_join_settled_runs_when_all_have_settled_however() -> None:
    game = two_then("settled").fail("a", retryable=False)
    assert game.statuses["c"] == "pending"
    assert game.fail("b", retryable=False).started == [("c", 1)]


def test_join_any_runs_at_the_first_success_and_only_once() -> None:
    game = two_then("any").fail("a", retryable=False)
    assert game.statuses["c"] == "pending"
    assert game.succeed("b").started == [("c", 1)]
    game = two_then("any").succeed("a")
    assert game.started == [("c", 1)]
    assert game.succeed("b").started == []


def test_join_any_is_skipped_when_no_need_succeeded() -> None:
    game = two_then("any").fail("a", retryable=False).fail("b", retryable=False)
    assert game.statuses["c"] == "skipped"
    assert game.run.status is Status.SUCCEEDED


def test_skipping_goes_on_down_to_where_somebody_takes_it() -> None:
    flow = a_flow(
        {
            "a": {"on_failure": "continue"},
            "b": {"needs": ["a"]},
            "c": {"needs": ["b"]},
            "d": {"needs": ["c"], "join": "any"},
            "e": {"needs": ["d", "c"], "join": "settled", "input": "${steps.d.status} after ${steps.a.status}"},
        }
    )
    game = Game(flow).claim().fail("a", retryable=False)
    assert game.statuses == {"a": "failed", "b": "skipped", "c": "skipped", "d": "skipped", "e": "running"}
    assert game.inputs == {"e": "skipped after failed"}


@pytest.mark.parametrize(
    ("risk", "goes_on"), [(5, True), (3, False), (None, False)], ids=["true", "false", "absent, so null"]
)
def test_when_decides_whether_a_step_whose_turn_has_come_is_run(risk: int | None, goes_on: bool) -> None:
    flow = a_flow({"a": {}, "b": {"needs": ["a"], "when": "${steps.a.output.risk > `3`}"}})
    game = Game(flow).claim().succeed("a", out={} if risk is None else {"risk": risk})
    assert game.statuses["b"] == ("running" if goes_on else "skipped")
    assert game.run.status is (Status.RUNNING if goes_on else Status.SUCCEEDED)


@pytest.mark.parametrize(("value", "goes_on"), [(0, True), ("", False), ([], False), ({}, False), ("no", True)])
def test_when_takes_jmespaths_notion_of_truth(value: object, goes_on: bool) -> None:
    game = Game(a_flow({"a": {"when": "${input.v}"}}), input={"v": value}).claim()
    assert game.statuses["a"] == ("running" if goes_on else "skipped")


def test_a_skipped_first_step_leaves_a_run_that_succeeds_at_its_claim() -> None:
    game = Game(a_flow({"a": {"when": "${input.go}"}}), input={"go": False}).claim()
    assert game.run.status is Status.SUCCEEDED
    assert journal_of(game.run) == ["run.accepted", "run.claimed", "step.skipped a", "run.succeeded"]


@pytest.mark.parametrize("key", ["when", "input"])
def test_an_expression_that_fails_fails_its_step(key: str) -> None:
    game = Game(a_flow({"a": {}, "b": {"needs": ["a"], key: "${abs(steps.a.output)}"}})).claim().succeed("a", out="x")
    assert game.run.status is Status.FAILED
    assert game.run.reason is Reason.STEP_FAILED
    assert game.run.error is not None
    assert game.run.error.type == "expression_error"
    assert game.statuses["b"] == "failed"
    assert game.run.steps["b"].attempts == 0


def test_an_expression_that_fails_under_continue_fails_its_step_alone() -> None:
    flow = a_flow({"a": {"input": "${abs(input)}", "on_failure": "continue"}, "b": {"needs": ["a"], "join": "settled"}})
    game = Game(flow, input="x").claim()
    assert game.statuses == {"a": "failed", "b": "running"}


def test_a_workflows_output_that_fails_fails_the_run() -> None:
    game = Game(a_flow({"a": {}}, output="${abs(steps.a.output)}")).claim().succeed("a", out="x")
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert game.statuses["a"] == "succeeded"


def test_a_failing_step_fails_its_run_at_once_and_what_runs_is_cancelled() -> None:
    flow = a_flow({"a": {}, "b": {}, "c": {"needs": ["a"]}, "r": {"retry": {"max_attempts": 2, "backoff": "9s"}}})
    game = Game(flow).claim().fail("r", chance=0.9)
    game.fail("a", retryable=False)
    assert game.statuses == {"a": "failed", "b": "cancelled", "c": "pending", "r": "cancelled"}
    assert game.run.status is Status.FAILED
    assert game.run.error is not None
    assert game.run.error.message == "step 'a' failed: it broke"
    assert game.succeed("b").run.status is Status.FAILED


def test_a_run_that_fails_in_the_decision_that_would_start_more_starts_nothing() -> None:
    flow = a_flow({"a": {}, "b": {"input": "${abs(input)}"}})
    game = Game(flow, input="x").claim()
    assert game.run.status is Status.FAILED
    assert game.started == []
    assert game.slots == 1


def test_continue_settles_the_step_as_failed_and_shows_its_error_to_those_behind() -> None:
    flow = a_flow(
        {"a": {"on_failure": "continue"}, "b": {"needs": ["a"], "join": "settled", "input": "${steps.a.error.type}"}}
    )
    game = Game(flow).claim().fail("a", retryable=False)
    assert game.inputs == {"b": "Broken"}


def test_a_second_delivery_of_a_finished_step_changes_nothing() -> None:
    game = Game(DIAMOND).claim().succeed("seed")
    before = game.run
    game.succeed("seed", out="other")
    assert game.run is before
    assert game.effects == ()


def test_the_end_of_an_older_attempt_changes_nothing() -> None:
    game = Game(a_flow({"a": {"retry": {"max_attempts": 3, "backoff": "1s"}}})).claim()
    stale = game.run.steps["a"].attempts
    game.fail("a").after(1).look()
    assert game.run.steps["a"].attempts == stale + 1
    assert not game.feed(AttemptSucceeded(step="a", attempt=stale, output="old")).changed


def test_a_payload_by_reference_is_asked_for_only_where_an_expression_needs_it() -> None:
    ref = BlobRef(key="k", bytes=10_000, sha256="0" * 64)
    flow = a_flow(
        {
            "a": {},
            "b": {"needs": ["a"], "input": "${steps.a.status}"},
            "c": {"needs": ["b"], "input": "${steps.a.output.text}"},
        }
    )
    game = Game(flow).claim().succeed("a", out=ref)
    assert game.inputs == {"b": "succeeded"}
    with pytest.raises(ValuesMissing) as missing:
        game.succeed("b")
    assert missing.value.refs == (ref,)
    game.loaded = {"k": {"text": "found"}}
    assert game.succeed("b").inputs == {"c": "found"}


def test_a_whole_output_by_reference_that_is_passed_on_is_loaded() -> None:
    ref = BlobRef(key="k", bytes=10_000, sha256="0" * 64)
    game = Game(a_flow({"a": {}}, output="${steps.a.output}"), loaded={"k": "x" * 10_000}).claim()
    assert game.succeed("a", out=ref).run.output == "x" * 10_000


def test_progress_is_journalled_while_its_attempt_runs_and_not_after() -> None:
    game = Game(a_flow({"a": {}, "b": {}})).claim().emit("a", {"n": 1}).emit("a", None)
    assert [e.data for e in game.run.journal if e.type == "step.emitted"] == [{"data": {"n": 1}}, {"data": None}]
    game.succeed("a")
    before = game.run
    assert game.emit("a", {"n": 2}).run is before
