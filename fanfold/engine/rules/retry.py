"""How long to wait before the next attempt."""

from __future__ import annotations

import sys
from datetime import timedelta

from fanfold.engine.language.calling import Jitter, RetryPolicy

LONGEST_ASKED = timedelta(days=1)
"""The longest delay a task may ask for with `Retry(after=…)`."""


def delay(policy: RetryPolicy, *, failures: int, chance: float, after_seconds: float | None) -> timedelta:
    """The delay after the `failures`-th failure (from 1).

    What the task asked for, else `backoff · factor^(failures−1)`, at most `max_backoff`; full jitter
    takes a `chance` in [0, 1) of it.
    """
    if after_seconds is not None:
        # Bounded as a number: a timedelta can't hold every float.
        return _whole(min(max(0.0, after_seconds), LONGEST_ASKED.total_seconds()))
    seconds = min(policy.max_backoff_seconds, policy.backoff_seconds * _power(policy.factor, failures - 1))
    if policy.jitter is Jitter.FULL:
        seconds *= chance
    return _whole(seconds)


def _power(factor: float, exponent: int) -> float:
    """The factor's power; the largest number there is where it would be larger, which passes every longest delay."""
    try:
        return factor**exponent
    except OverflowError:
        return sys.float_info.max


def _whole(seconds: float) -> timedelta:
    """In whole milliseconds: a record holds no finer time, and must be what it was after a round trip."""
    return timedelta(milliseconds=round(seconds * 1000))
