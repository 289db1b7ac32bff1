"""Waits: for a time, until a moment, for a signal; and signals that come early, twice, late, or too many."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.errors import KeyReused, SignalsFull, WrongState
from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules.events import Keyed
from fanfold.engine.rules.kinds.wait_step import MAX_SIGNALS
from tests.support.clock import START
from tests.support.game import Game, a_flow

DAY = 86_400.0
GATE = {"wait": {"signal": "approve"}}
AFTER = {"task": "probe.play", "needs": ["gate"], "input": "${steps.gate.output}"}


def a_gate(wait: dict[str, Any] | None = None, *, timeout: str = "30d", **given: Any) -> Game:
    """A claimed run whose first step is a wait and whose second takes its output."""
    gate = {"wait": wait or {"signal": "approve"}, **given}
    return Game(a_flow({"gate": gate, "after": AFTER}, timeout=timeout)).claim()


# --- times ------------------------------------------------------------------------------------


def test_a_long_wait_suspends_the_run_until_its_end_and_sends_no_message_before() -> None:
    game = a_gate({"for": "7d"})
    assert (game.run.status, game.run.due_at) == (Status.WAITING, START + timedelta(days=7))
    assert game.statuses == {"gate": "waiting", "after": "pending"}
    assert game.rings == []
    assert game.run.journal[-1].data == {"for": "wait"}


def test_a_wait_due_within_a_quarter_of_an_hour_rings_for_itself() -> None:
    assert a_gate({"for": "15m"}).rings == [START + timedelta(minutes=15)]
    assert a_gate({"for": "16m"}).rings == []


def test_a_wait_is_over_when_its_time_has_come_and_the_next_step_starts() -> None:
    game = a_gate({"for": "7d"}).after(7 * DAY).claim()
    assert game.statuses == {"gate": "succeeded", "after": "running"}
    assert game.inputs == {"after": None}


def test_a_claim_before_the_time_suspends_the_run_again() -> None:
    game = a_gate({"for": "7d"}).after(DAY).claim()
    assert (game.run.status, game.run.due_at) == (Status.WAITING, START + timedelta(days=7))


def test_a_short_wait_is_sat_out_by_the_holder() -> None:
    game = a_gate({"for": "2s"})
    assert game.run.status is Status.RUNNING
    assert game.after(2).look().started == [("after", 1)]


def test_a_wait_beside_running_work_does_not_stop_it() -> None:
    game = Game(a_flow({"gate": {"wait": {"for": "7d"}}, "work": {}}, timeout="30d")).claim()
    assert (game.run.status, game.started) == (Status.RUNNING, [("work", 1)])
    game.succeed("work")
    assert (game.run.status, game.run.due_at) == (Status.WAITING, START + timedelta(days=7))


def test_until_waits_for_the_moment_an_expression_gives() -> None:
    when = (START + timedelta(hours=5)).astimezone().isoformat()
    game = Game(a_flow({"gate": {"wait": {"until": "${input.at}"}}}), input={"at": when}).claim()
    assert game.run.due_at == START + timedelta(hours=5)


@pytest.mark.parametrize("at", ["2020-01-01T00:00:00Z", START.isoformat(), "2020-01-01T01:00:00+01:00"])
def test_until_a_moment_that_is_past_goes_on_at_once(at: str) -> None:
    game = Game(a_flow({"gate": {"wait": {"until": "${input.at}"}}, "after": AFTER}), input={"at": at}).claim()
    assert game.statuses == {"gate": "succeeded", "after": "running"}


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("tomorrow", "no ISO 8601 time"),
        ("2030-01-01T00:00:00", "no offset"),
        (7, "must be an ISO 8601"),
        (None, "must"),
    ],
)
def test_until_what_is_no_moment_fails_the_step(at: Any, says: str) -> None:
    game = Game(a_flow({"gate": {"wait": {"until": "${input.at}"}}}), input={"at": at}).claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    fault = game.run.steps["gate"].error
    assert fault is not None
    assert (fault.type, says in fault.message) == ("invalid_time", True)


def test_a_wait_whose_needs_say_no_is_skipped() -> None:
    game = Game(a_flow({"gate": {**GATE, "when": "${input.wanted}"}, "after": AFTER}), input={}).claim()
    assert game.statuses == {"gate": "skipped", "after": "skipped"}


def test_the_runs_own_timeout_ends_every_wait() -> None:
    game = a_gate(timeout="1h").after(3_600).claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.TIMED_OUT)
    assert game.statuses == {"gate": "cancelled", "after": "pending"}


# --- signals ----------------------------------------------------------------------------------


def test_a_signal_passes_the_wait_and_makes_the_run_due_at_once() -> None:
    game = a_gate().after(DAY).signal("approve", {"by": "Grace", "why": "looks good"})
    assert (game.run.status, game.run.due_at) == (Status.WAITING, game.now)
    assert game.rings == [game.now]
    game.claim()
    assert game.inputs == {"after": {"by": "Grace", "why": "looks good"}}


def test_the_journal_keeps_who_signalled_what() -> None:
    game = a_gate().signal("approve", {"why": "ok"}, by="Grace")
    told = [entry for entry in game.run.journal if entry.type == "signal.received"]
    assert [(entry.step, entry.data) for entry in told] == [
        ("gate", {"name": "approve", "by": "Grace", "payload": {"why": "ok"}})
    ]


def test_a_big_payload_is_told_by_reference() -> None:
    ref = BlobRef(key="acme/r/s/signals/x", bytes=2_000, sha256="0" * 64)
    game = a_gate().signal("approve", ref)
    assert game.run.journal[-2].data == {
        "name": "approve",
        "by": "Ada",
        "payload": {"$ref": ref.key, "bytes": 2_000, "sha256": "0" * 64},
    }
    assert game.run.steps["gate"].output == ref


def test_a_signal_that_comes_early_counts() -> None:
    flow = a_flow({"before": {}, "gate": {**GATE, "needs": ["before"]}, "after": AFTER})
    game = Game(flow).claim().signal("approve", "early").notice()
    assert game.run.status is Status.RUNNING
    game.succeed("before")
    assert game.statuses == {"before": "succeeded", "gate": "succeeded", "after": "running"}
    assert game.inputs == {"after": "early"}


def test_a_signal_reaches_a_run_that_is_still_queued() -> None:
    game = Game(a_flow({"gate": GATE, "after": AFTER})).signal("approve", "first")
    assert (game.run.status, game.slots) == (Status.QUEUED, 0)
    game.claim()
    assert (game.inputs, game.slots) == ({"after": "first"}, 1)


def test_a_signal_of_another_name_changes_no_wait() -> None:
    game = a_gate().signal("reject", "no")
    assert (game.statuses["gate"], game.rings) == ("waiting", [])
    assert [signal.name for signal in game.run.signals] == ["reject"]


def two_gates() -> Game:
    second = {"wait": {"signal": "approve"}, "needs": ["middle"]}
    return Game(a_flow({"gate": GATE, "middle": AFTER, "second": second})).claim()


def test_one_approval_never_passes_two_gates() -> None:
    game = Game(a_flow({"before": {}, "gate": {**GATE, "needs": ["before"]}, "second": {**GATE, "needs": ["gate"]}}))
    game.claim().signal("approve", "one").signal("approve", "the same again").notice().succeed("before")
    assert game.statuses == {"before": "succeeded", "gate": "succeeded", "second": "waiting"}
    assert game.run.signals == ()


def test_a_signal_after_the_first_gate_is_for_the_second() -> None:
    game = two_gates().signal("approve", "first").signal("approve", "second").claim()
    assert game.statuses == {"gate": "succeeded", "middle": "running", "second": "pending"}
    game.succeed("middle")
    assert (game.run.status, game.run.steps["second"].output) == (Status.SUCCEEDED, "second")


def test_two_waits_at_once_take_two_signals_in_document_order() -> None:
    game = Game(a_flow({"left": GATE, "right": GATE})).claim().signal("approve", 1).signal("approve", 2)
    assert [game.run.steps[name].output for name in ("left", "right")] == [1, 2]


def test_a_wait_without_its_signal_fails_as_timed_out() -> None:
    game = a_gate({"signal": "approve", "timeout": "24h"}).after(DAY).claim()
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert game.run.steps["gate"].error is not None
    assert game.run.steps["gate"].error.type == "timed_out"


def test_a_wait_that_may_time_out_lets_the_run_go_on() -> None:
    gate = {"wait": {"signal": "approve", "timeout": "24h"}, "on_failure": "continue"}
    after = {"needs": ["gate"], "join": "settled", "input": "${steps.gate.status}"}
    game = Game(a_flow({"gate": gate, "after": after}, timeout="30d")).claim().after(DAY).claim()
    assert game.inputs == {"after": "failed"}


def test_a_signal_that_is_in_the_record_before_the_timeout_counts_however_late_it_is() -> None:
    game = a_gate({"signal": "approve", "timeout": "24h"}).after(DAY + 30).signal("approve", "late").claim()
    assert game.inputs == {"after": "late"}


def test_a_signal_to_a_run_with_other_work_is_noticed_by_its_holder() -> None:
    game = Game(a_flow({"gate": GATE, "after": AFTER, "work": {}})).claim()
    lease = game.run.lease_until
    game.after(10).signal("approve", "now")
    assert (game.run.status, game.run.lease_until, game.started) == (Status.RUNNING, lease, [])
    assert game.notice().started == [("after", 1)]


def test_a_run_holds_no_more_than_a_hundred_signals() -> None:
    game = a_gate()
    for number in range(MAX_SIGNALS):
        game.signal("other", number)
    with pytest.raises(SignalsFull, match="waiting and holds 100 signals"):
        game.signal("other", "one too many")
    assert game.signal("approve", "taken at once").statuses["gate"] == "succeeded"


def test_signals_that_nobody_waits_for_keep_out_none_that_a_wait_will_take() -> None:
    steps = {"first": {"wait": {"for": "1h"}}, "gate": {**GATE, "needs": ["first"]}}
    game = Game(a_flow(steps, timeout="30d")).claim()
    for number in range(MAX_SIGNALS):
        game.signal(f"other-{number % 7}", number)
    with pytest.raises(SignalsFull, match=r"holds 100 signals .*: 15 'other-0', 15 'other-1', 14 'other-2'"):
        game.signal("other-8")
    game.signal("approve", "in time")
    assert game.after(3_601).claim().statuses["gate"] == "succeeded"


def test_many_signals_under_one_name_keep_out_none_under_another_that_is_waited_for() -> None:
    steps = {
        "first": {"wait": {"for": "1h"}},
        "gate": {**GATE, "needs": ["first"]},
        "other": {"wait": {"signal": "other", "timeout": "24h"}, "needs": ["first"]},
    }
    game = Game(a_flow(steps, timeout="30d")).claim()
    for number in range(MAX_SIGNALS):
        game.signal("other", number)
    game.signal("approve", "the first of its name")
    with pytest.raises(SignalsFull, match="100 'other', 1 'approve'"):
        game.signal("approve", "the second")


def test_a_repeated_key_is_the_same_signal_and_another_body_a_conflict() -> None:
    keyed = Keyed(key="k1", content="c1")
    game = two_gates().signal("approve", "once", keyed=keyed)
    before = game.run
    assert game.signal("approve", "once", keyed=keyed).run is before
    with pytest.raises(KeyReused):
        game.signal("approve", "other", keyed=Keyed(key="k1", content="c2"))


def test_a_signal_to_a_run_that_has_ended_is_refused_with_its_state() -> None:
    game = a_gate().signal("approve").claim().succeed("after")
    with pytest.raises(WrongState, match="the run is succeeded: signal"):
        game.signal("approve")
