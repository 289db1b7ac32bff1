"""Whether a lease is over is judged alike by processes of every setting."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.engine_limits import MAX_LEASE
from fanfold.engine.rules.lease import abandoned, held
from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import Settings
from tests.support.builders import a_run
from tests.support.clock import START

LEASES = st.floats(min_value=11, max_value=MAX_LEASE.total_seconds())


def a_held_run(lease_seconds: float, since_seconds: float = 0) -> Run:
    lease_until = START + timedelta(seconds=lease_seconds - since_seconds)
    return a_run(1, status=Status.RUNNING, version=2, epoch=1, owner="c" * 16, lease_until=lease_until)


@given(taken=LEASES, now=LEASES, share=st.floats(min_value=0, max_value=1), skew=st.floats(min_value=-5, max_value=5))
def test_a_lease_of_any_length_stands_whatever_length_leases_have_now(
    taken: float, now: float, share: float, skew: float
) -> None:
    run = a_held_run(taken, since_seconds=taken * share)
    limits = engine_limits(Settings(lease_seconds=now))
    assert held(run, START + timedelta(seconds=skew * 0.99), limits)


@given(taken=LEASES, now=LEASES)
def test_a_lease_that_ended_is_over_whatever_length_leases_have_now(taken: float, now: float) -> None:
    limits = engine_limits(Settings(lease_seconds=now))
    end = START + timedelta(seconds=taken) + limits.skew + timedelta(milliseconds=1)
    assert abandoned(a_held_run(taken), end, limits)


def test_a_lease_that_no_setting_can_have_made_is_over() -> None:
    run = replace(a_held_run(60), lease_until=START + 2 * MAX_LEASE + timedelta(seconds=1))
    assert abandoned(run, START, engine_limits(Settings()))


def test_no_longer_lease_can_be_asked_for() -> None:
    with pytest.raises(ValueError, match="lease_seconds must be from 0 to 900"):
        Settings(lease_seconds=901)
