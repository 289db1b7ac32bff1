"""What a message is worth, given the row (R2, R4, R5), and who holds a run (lease)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fanfold.engine.record.run import TERMINAL, Run, Status
from fanfold.engine.rules.delivery import Claim, Defer, Discard, Isolate, on_envelope, on_wake
from fanfold.engine.rules.lease import abandoned, held
from tests.support.builders import a_run, a_wake, an_envelope
from tests.support.clock import START
from tests.support.game import LIMITS

LEASED = a_run(
    status=Status.RUNNING, version=2, epoch=1, owner="c1", lease_until=START + timedelta(seconds=60), slot=None
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def waiting(due: float) -> Run:
    return replace(LEASED, status=Status.WAITING, due_at=at(due))


# --- leases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "valid"), [(0, True), (60, True), (65, True), (65.001, False)])
def test_a_lease_counts_until_the_clocks_skew_after_its_end(seconds: float, valid: bool) -> None:
    assert held(LEASED, at(seconds), LIMITS) is valid
    assert abandoned(LEASED, at(seconds), LIMITS) is not valid


def test_a_lease_from_a_clock_gone_wrong_counts_as_over() -> None:
    far = replace(LEASED, lease_until=at(1_801))
    assert abandoned(far, at(0), LIMITS)
    assert not abandoned(far, at(1), LIMITS)


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.RUNNING, Status.PAUSED)])
def test_only_a_running_or_paused_run_is_held(status: Status) -> None:
    run = replace(LEASED, status=status)
    assert not held(run, at(0), LIMITS)
    assert not abandoned(run, at(999), LIMITS)


# --- envelopes ---------------------------------------------------------------------------------


def envelope_verdict(row: Run | None, seconds: float, receives: int = 1) -> object:
    return on_envelope(an_envelope(), row, at(seconds), LIMITS, receives=receives)


def test_an_envelope_without_a_row_is_claimed() -> None:
    assert envelope_verdict(None, 0) == Claim()


def test_an_envelope_of_a_queued_row_is_claimed() -> None:
    assert envelope_verdict(a_run(), 0) == Claim()


def test_an_envelope_of_another_submission_is_void() -> None:
    assert isinstance(envelope_verdict(a_run(submission="another"), 0), Discard)


def test_in_its_first_lease_a_runs_envelope_is_handed_back_until_the_lease_is_over_for_everybody() -> None:
    verdict = envelope_verdict(LEASED, 10)
    assert isinstance(verdict, Defer)
    assert abandoned(LEASED, verdict.until, LIMITS)
    assert verdict.until <= at(67)


def test_an_envelope_whose_worker_died_is_a_suspects() -> None:
    assert envelope_verdict(LEASED, 66) == Isolate()


def test_an_envelope_of_a_run_in_a_later_lease_is_dropped() -> None:
    assert isinstance(envelope_verdict(replace(LEASED, epoch=2), 10), Discard)


def test_an_envelope_that_comes_again_in_a_later_lease_may_be_what_its_holder_lives_by() -> None:
    assert isinstance(envelope_verdict(replace(LEASED, epoch=2), 10, receives=2), Defer)


@pytest.mark.parametrize("status", [*sorted(TERMINAL), Status.PAUSED])
def test_an_envelope_of_an_ended_or_paused_run_is_dropped(status: Status) -> None:
    assert isinstance(envelope_verdict(replace(LEASED, status=status), 10), Discard)


def test_an_envelope_of_a_waiting_run_is_dropped_other_messages_carry_it() -> None:
    assert isinstance(envelope_verdict(waiting(5), 10), Discard)


# --- wakes -------------------------------------------------------------------------------------


def wake_verdict(row: Run | None, seconds: float, *, receives: int = 1, **given: int) -> object:
    return on_wake(a_wake(**given), row, at(seconds), LIMITS, receives=receives)


def test_a_wake_for_an_unknown_run_is_dropped() -> None:
    assert isinstance(wake_verdict(None, 0), Discard)
    assert isinstance(wake_verdict(replace(waiting(0), submission="another"), 0), Discard)


@pytest.mark.parametrize("status", [*sorted(TERMINAL), Status.PAUSED, Status.QUEUED])
def test_a_wake_for_a_run_with_nothing_due_is_dropped(status: Status) -> None:
    assert isinstance(wake_verdict(replace(LEASED, status=status), 99), Discard)


def test_a_wake_for_a_run_that_is_due_claims_it() -> None:
    assert wake_verdict(waiting(30), 30) == Claim()


def test_a_wake_a_little_early_is_handed_back_until_the_run_is_due() -> None:
    assert wake_verdict(waiting(30), 15) == Defer(at(30))
    assert isinstance(wake_verdict(waiting(30), 14.9), Discard)


def test_a_wake_finds_a_dead_workers_run() -> None:
    assert wake_verdict(LEASED, 66) == Isolate()


def test_a_first_wake_for_a_run_in_good_hands_is_dropped() -> None:
    assert isinstance(wake_verdict(LEASED, 10), Discard)


def test_a_wake_that_comes_again_while_the_run_is_leased_is_handed_back() -> None:
    verdict = wake_verdict(LEASED, 10, receives=2)
    assert isinstance(verdict, Defer)
    assert abandoned(LEASED, verdict.until, LIMITS)


def test_a_wake_put_back_for_an_outage_counts_as_one_that_comes_again() -> None:
    """Its claim may have been carried out though nobody was told: then it is what the run lives by."""
    assert isinstance(wake_verdict(LEASED, 60, outages=1), Defer)
