"""Operators' moves on a record: what each does in each state, and what it may not (R10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.errors import KeyReused, WrongState
from fanfold.engine.record.messages import envelope_of
from fanfold.engine.record.operations import OPERATIONS, Operation
from fanfold.engine.record.run import Failure, Reason, Status
from fanfold.engine.rules.delivery import Claim, Defer, on_envelope
from fanfold.engine.rules.effects import SendEnvelope
from fanfold.engine.rules.events import (
    AttemptFailed,
    AttemptSucceeded,
    CancelAsked,
    Event,
    Keyed,
    MapEnded,
    OperatorRequest,
    PauseAsked,
    RecordTooLarge,
    RedriveAsked,
    ResumeAsked,
    Signalled,
)
from tests.support.clock import START
from tests.support.game import LIMITS, Game, a_flow
from tests.support.world import journal_of

FLOW = {
    "first": {},
    "gate": {"wait": {"signal": "approve"}, "needs": ["first"]},
    "last": {"needs": ["gate"]},
}
MOVES: dict[Operation, OperatorRequest] = {
    Operation.CANCEL: CancelAsked(by="Ada"),
    Operation.PAUSE: PauseAsked(by="Ada"),
    Operation.RESUME: ResumeAsked(by="Ada"),
    Operation.SIGNAL: Signalled(by="Ada", name="approve", payload=None),
    Operation.REDRIVE: RedriveAsked(by="Ada"),
}


def a_game(flow: dict[str, Any] | None = None, **given: Any) -> Game:
    return Game(a_flow(flow or FLOW, **given))


STATES: dict[Status, Callable[[], Game]] = {
    Status.QUEUED: a_game,
    Status.RUNNING: lambda: a_game().claim(),
    Status.WAITING: lambda: a_game().claim().succeed("first"),
    Status.PAUSED: lambda: a_game().claim().succeed("first").pause(),
    Status.SUCCEEDED: lambda: a_game().claim().succeed("first").signal("approve").claim().succeed("last"),
    Status.FAILED: lambda: a_game().claim().fail("first"),
    Status.CANCELLED: lambda: a_game().cancel(),
}

AFTER: dict[tuple[Operation, Status], Status] = {
    (Operation.CANCEL, Status.QUEUED): Status.CANCELLED,
    (Operation.CANCEL, Status.RUNNING): Status.RUNNING,  # its holder stops the tasks first
    (Operation.CANCEL, Status.WAITING): Status.CANCELLED,
    (Operation.CANCEL, Status.PAUSED): Status.CANCELLED,
    (Operation.PAUSE, Status.QUEUED): Status.PAUSED,
    (Operation.PAUSE, Status.RUNNING): Status.PAUSED,
    (Operation.PAUSE, Status.WAITING): Status.PAUSED,
    (Operation.RESUME, Status.PAUSED): Status.WAITING,
    (Operation.REDRIVE, Status.FAILED): Status.WAITING,
    (Operation.REDRIVE, Status.CANCELLED): Status.WAITING,
}
"""Every move of an operator that changes a run's status; any other leaves it."""


@pytest.mark.parametrize("operation", MOVES)
@pytest.mark.parametrize("status", STATES)
def test_every_move_in_every_state_does_what_the_table_says(operation: Operation, status: Status) -> None:
    game = STATES[status]()
    assert game.run.status is status
    before = game.run
    if status not in OPERATIONS[operation]:
        with pytest.raises(WrongState, match=f"the run is {status}"):
            game.feed(MOVES[operation])
        assert game.run is before
        return
    game.feed(MOVES[operation])
    assert game.run.status is AFTER.get((operation, status), status)
    assert (game.run.due_at is not None) == (game.run.status is Status.WAITING)


@pytest.mark.parametrize("operation", [Operation.CANCEL, Operation.PAUSE, Operation.RESUME])
@pytest.mark.parametrize("status", STATES)
def test_a_move_made_twice_is_made_once(operation: Operation, status: Status) -> None:
    if status not in OPERATIONS[operation]:
        return
    game = STATES[status]()
    game.feed(MOVES[operation])
    once = game.run
    assert not game.feed(MOVES[operation]).changed
    assert game.run is once


# --- cancel -----------------------------------------------------------------------------------


def test_a_queued_run_is_cancelled_at_once_and_gives_its_slot_back() -> None:
    game = a_game().cancel()
    assert (game.run.status, game.slots) == (Status.CANCELLED, 1)
    assert journal_of(game.run) == ["run.accepted", "run.cancel_requested", "run.cancelled"]


def test_a_holder_that_notices_ends_the_run_and_with_it_what_runs() -> None:
    game = a_game({"a": {}, "b": {"needs": ["a"]}, "c": {}}).claim()
    lease = game.run.lease_until
    game.after(5).cancel()
    assert (game.run.status, game.run.cancel_requested, game.run.lease_until) == (Status.RUNNING, True, lease)
    game.notice()
    assert (game.run.status, game.run.cancel_requested, game.run.reason) == (Status.CANCELLED, False, None)
    assert game.statuses == {"a": "cancelled", "b": "pending", "c": "cancelled"}


def test_a_result_that_comes_with_the_cancellation_is_recorded_and_a_failure_is_not() -> None:
    game = a_game({"a": {}, "b": {}}).claim().cancel().succeed("a").notice()
    assert game.statuses == {"a": "succeeded", "b": "cancelled"}
    game = a_game({"a": {}, "b": {}}).claim().cancel().fail("a")
    assert (game.run.status, game.statuses) == (Status.CANCELLED, {"a": "cancelled", "b": "cancelled"})


@pytest.mark.parametrize(
    "ends",
    [
        lambda game: AttemptFailed(
            step="a", attempt=1, failure=Failure(type="x", message="x"), retryable=True, chance=0.5
        ),
        lambda game: RecordTooLarge(detail="too big"),
        lambda game: MapEnded(step="a", attempt=1, output=[None], failed=1),
    ],
)
def test_a_run_that_is_to_be_cancelled_fails_of_nothing_any_more(ends: Callable[[Game], Event]) -> None:
    game = a_game({"a": {"map": {"over": [1], "task": "probe.play"}, "timeout": "60s"}}).claim().cancel()
    game.feed(ends(game))
    assert (game.run.status, game.run.reason) == (Status.CANCELLED, None)
    assert "run.failed" not in journal_of(game.run)


def test_a_run_whose_holder_died_is_cancelled_at_once() -> None:
    game = a_game().claim().after(66).cancel()
    assert (game.run.status, game.statuses["first"]) == (Status.CANCELLED, "cancelled")


def test_a_holder_that_dies_before_it_notices_leaves_the_cancellation_to_the_next() -> None:
    game = a_game({"a": {"retry": {"on_interrupt": "fail"}}}).claim().cancel().crash()
    assert (game.run.status, game.run.reason, game.statuses) == (Status.CANCELLED, None, {"a": "cancelled"})


def test_while_a_run_is_being_cancelled_no_other_move_is_possible() -> None:
    game = a_game().claim().cancel()
    for operation in (Operation.PAUSE, Operation.RESUME, Operation.SIGNAL):
        with pytest.raises(WrongState, match="being cancelled"):
            game.feed(MOVES[operation])


# --- pause and resume -------------------------------------------------------------------------


def test_a_run_paused_before_its_first_claim_keeps_its_slot_and_waits_for_its_turn_again() -> None:
    game = a_game(queue_timeout="1m")
    slot, deadline, queue_deadline = game.run.slot, game.run.deadline, game.run.queue_deadline
    game.pause()
    assert (game.run.status, game.slots, game.run.slot) == (Status.PAUSED, 0, slot)
    length = timedelta(hours=1)
    game.after(3_600).resume()
    assert (game.run.status, game.slots, game.run.slot, game.rings) == (Status.QUEUED, 0, slot, [])
    assert game.effects == (SendEnvelope(),)
    assert (game.run.deadline, game.run.queue_deadline) == (deadline + length, queue_deadline + length)
    game.claim()
    assert (game.started, game.run.started_at, game.slots) == ([("first", 1)], game.now, 1)


@pytest.mark.parametrize("end", ["cancel", "cancelled while it waits again"])
def test_a_run_paused_before_its_first_claim_returns_its_slot_once_when_it_is_cancelled(end: str) -> None:
    game = a_game().pause()
    if end != "cancel":
        game.after(1).resume()
    game.cancel()
    assert (game.run.status, game.slots, game.run.slot) == (Status.CANCELLED, 1, None)


def test_a_record_of_older_code_that_was_paused_without_its_slot_goes_on_as_it_did_then() -> None:
    game = a_game(queue_timeout="1m").pause()
    game.run = replace(game.run, slot=None)
    game.after(3_600).resume()
    assert (game.run.status, game.run.queue_deadline, game.rings) == (Status.WAITING, None, [game.now])
    assert game.claim().started == [("first", 1)]
    assert game.slots == 0


def test_a_pause_forgets_no_delay() -> None:
    begins = START + timedelta(minutes=10)
    game = Game(a_flow(FLOW), not_before=begins).after(1).pause().after(1).resume()
    assert game.run.not_before == begins
    envelope = envelope_of(game.run)
    assert on_envelope(envelope, game.run, game.now, LIMITS, receives=1) == Defer(begins)
    assert on_envelope(envelope, game.run, begins, LIMITS, receives=1) == Claim()


def test_what_runs_is_recorded_while_nothing_new_starts_and_the_last_end_lets_go() -> None:
    game = a_game({"a": {}, "b": {}, "c": {"needs": ["a"]}}).claim().pause()
    assert game.run.lease_until is not None
    game.after(10).succeed("a")
    assert (game.run.status, game.statuses, game.run.lease_until) == (
        Status.PAUSED,
        {"a": "succeeded", "b": "running", "c": "pending"},
        game.now + timedelta(seconds=60),
    )
    game.after(10).fail("b")
    assert game.run.status is Status.FAILED  # b's failure fails the run, paused or not


def test_a_paused_holder_renews_its_lease_until_its_attempts_have_ended() -> None:
    game = a_game({"a": {}, "b": {"needs": ["a"]}}).claim().pause().after(20).renew()
    assert game.run.lease_until == game.now + timedelta(seconds=60)
    let_go = game.succeed("a").run
    assert (let_go.status, let_go.lease_until) == (Status.PAUSED, None)
    assert not game.feed().changed


def test_resumed_under_a_valid_lease_the_run_goes_on_with_its_holder() -> None:
    game = a_game({"a": {}, "b": {}, "c": {"needs": ["a"]}}).claim().pause().succeed("a")
    lease = game.run.lease_until
    game.after(5).resume()
    assert (game.run.status, game.run.lease_until, game.started) == (Status.RUNNING, lease, [])
    assert game.notice().started == [("c", 1)]


def test_resumed_after_its_holder_died_the_attempts_are_interrupted() -> None:
    game = a_game({"a": {}}).claim().pause().after(600).resume()
    assert (game.run.status, game.run.crashes, game.statuses) == (Status.WAITING, 1, {"a": "retrying"})
    assert game.claim().started == [("a", 2)]


def test_at_most_once_holds_over_a_pause() -> None:
    game = a_game({"a": {"retry": {"on_interrupt": "fail"}}}).claim().pause().after(600).resume()
    assert (game.run.status, game.statuses) == (Status.FAILED, {"a": "failed"})


def test_deadlines_stand_still_while_a_run_is_paused_but_until_does_not() -> None:
    at = (START + timedelta(hours=6)).isoformat()
    flow = {
        "timer": {"wait": {"for": "2h"}},
        "moment": {"wait": {"until": "${input.at}"}},
        "signal": {"wait": {"signal": "approve", "timeout": "3h"}},
    }
    game = Game(a_flow(flow, timeout="12h"), input={"at": at}).claim().after(3_600).pause()
    game.after(100 * 3_600).resume()
    due = {name: state.due_at for name, state in game.run.steps.items()}
    assert due == {
        "timer": START + timedelta(hours=102),
        "moment": START + timedelta(hours=6),
        "signal": START + timedelta(hours=103),
    }
    assert game.run.deadline == START + timedelta(hours=112)
    assert game.run.journal[-1].data == {"by": "Ada", "paused_seconds": 360_000.0}
    assert game.claim().statuses == {"timer": "waiting", "moment": "succeeded", "signal": "waiting"}


def test_a_retry_that_falls_into_a_pause_has_its_whole_delay_still_before_it() -> None:
    retry = {"max_attempts": 3, "backoff": "30s", "jitter": "none"}
    game = a_game({"a": {"retry": retry}}).claim().pause().after(10).fail("a").after(3_590).resume()
    assert game.run.steps["a"].due_at == game.now + timedelta(seconds=30)


def test_a_signal_passes_its_wait_though_the_run_is_paused_and_nothing_starts() -> None:
    game = STATES[Status.PAUSED]().signal("approve", "ok")
    assert (game.run.status, game.statuses, game.rings) == (
        Status.PAUSED,
        {"first": "succeeded", "gate": "succeeded", "last": "pending"},
        [],
    )
    assert game.resume().claim().started == [("last", 1)]


def test_a_run_paused_for_longer_than_a_life_is_out_of_time() -> None:
    game = a_game().pause().after(366 * 86_400).resume().claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.TIMED_OUT)


# --- redrive ----------------------------------------------------------------------------------

BATCH = {
    "extract": {},
    "optional": {"on_failure": "continue"},
    "load": {"needs": ["extract"]},
    "other": {"needs": ["extract"]},
    "report": {"needs": ["load", "optional"], "join": "settled", "when": "${steps.load.output}"},
    "mail": {"needs": ["optional"]},
}


def a_failed_batch() -> Game:
    game = a_game(BATCH).claim().succeed("extract").fail("optional").fail("load")
    assert game.statuses == {
        "extract": "succeeded",
        "optional": "failed",
        "load": "failed",
        "other": "cancelled",
        "report": "pending",
        "mail": "skipped",
    }
    return game


def test_a_redrive_begins_again_what_failed_and_keeps_what_succeeded() -> None:
    game = a_failed_batch().after(86_400).redrive()
    assert (game.run.status, game.run.try_number, game.run.deadline, game.rings) == (
        Status.WAITING,
        2,
        game.now + timedelta(days=1),
        [game.now],
    )
    assert (game.run.reason, game.run.error, game.run.finished_at, game.run.expires_at) == (None, None, None, None)
    assert game.statuses == {
        "extract": "succeeded",
        "optional": "failed",
        "load": "pending",
        "other": "pending",
        "report": "pending",
        "mail": "skipped",
    }
    game.claim()
    assert game.started == [("load", 2), ("other", 2)]
    game.succeed("load", "other")
    assert game.started == [("report", 1)]
    game.succeed("report")
    assert game.run.status is Status.SUCCEEDED


def test_what_was_skipped_because_of_a_failed_step_gets_another_turn() -> None:
    flow = {
        "a": {"on_failure": "continue"},
        "b": {},
        "c": {"needs": ["b"], "join": "any"},
        "d": {"needs": ["c", "a"]},
    }
    game = a_game(flow).claim().fail("a")
    assert game.statuses["d"] == "skipped"
    game.fail("b").redrive()
    assert game.statuses == {"a": "failed", "b": "pending", "c": "pending", "d": "pending"}


def test_a_cancelled_run_goes_on_where_it_was_cancelled() -> None:
    game = STATES[Status.WAITING]().cancel().redrive().claim()
    assert game.statuses == {"first": "succeeded", "gate": "waiting", "last": "pending"}


def test_a_run_that_was_never_started_is_redriven_without_a_slot() -> None:
    game = a_game().cancel().redrive().claim()
    assert (game.started, game.slots) == ([("first", 1)], 0)


def test_crashes_and_interruptions_count_anew_after_a_redrive() -> None:
    game = a_game({"a": {}}).claim()
    for _ in range(5):
        game.crash()
    assert game.run.reason is Reason.ATTEMPTS_EXHAUSTED
    game.redrive().claim().crash()
    assert (game.run.crashes, game.run.steps["a"].interruptions, game.started) == (1, 1, [("a", 7)])


def test_a_redrive_with_the_same_key_is_the_same_redrive() -> None:
    keyed = Keyed(key="k", content="c")
    game = a_failed_batch().redrive(keyed=keyed)
    before = game.run
    assert game.redrive(keyed=keyed).run is before
    with pytest.raises(WrongState, match="the run is waiting"):
        game.redrive()
    with pytest.raises(KeyReused):
        game.redrive(keyed=Keyed(key="k", content="other"))


def test_a_late_result_of_the_try_before_changes_nothing() -> None:
    game = a_game({"a": {}, "b": {}}).claim().fail("a").redrive().claim()
    assert game.run.steps["b"].attempts == 2
    before = game.run
    game.feed(AttemptSucceeded(step="b", attempt=1, output="late"))
    assert game.run is before
