"""Steps that call a task: for how long, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.issues import IssueCollector, kind_of
from fanfold.engine.language.step import AnyStep, template_of
from fanfold.engine.language.templates import Template
from fanfold.engine.payload import Json

DEFAULT_MAX_ATTEMPTS = 3
"""Attempts of a step that has `retry` without `max_attempts`."""
MAX_ATTEMPTS = 100
MAX_FACTOR = 100
RETRY_KEYS = ("max_attempts", "backoff", "factor", "max_backoff", "jitter", "on_interrupt")


class OnInterrupt(StrEnum):
    """What is done with an attempt whose worker died."""

    RETRY = "retry"  # begin another one
    FAIL = "fail"  # settle the step as failed: it is begun at most once


class Jitter(StrEnum):
    """How chance enters the delay before a retry."""

    FULL = "full"  # anything between nothing and the backoff
    NONE = "none"  # the backoff itself


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a step is attempted, and how long after the nth failure: `backoff_seconds · factor^(n-1)`, bounded."""

    max_attempts: int = 1
    backoff_seconds: float = 1.0
    factor: float = 2.0
    max_backoff_seconds: float = 60.0
    jitter: Jitter = Jitter.FULL
    on_interrupt: OnInterrupt = OnInterrupt.RETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingStep(AnyStep):
    """A step that calls a task with an input, in attempts of at most `timeout_seconds`."""

    task: str
    input: Template
    timeout_seconds: float = 0.0
    retry: RetryPolicy = RetryPolicy()


class CallFields(TypedDict):
    """The fields of `CallingStep` beside those of any step."""

    task: str
    input: Template
    timeout_seconds: float
    retry: RetryPolicy


def call_of(source: Mapping[str, Json], *, task: str, input: Json, longest_seconds: float) -> CallFields:
    """How a checked step of a document calls a task; without a `timeout` for `longest_seconds`."""
    return CallFields(
        task=task,
        input=template_of(input),
        timeout_seconds=_seconds(source, "timeout", longest_seconds),
        retry=_retry_of(source["retry"]) if "retry" in source else RetryPolicy(),
    )


def _retry_of(source: Mapping[str, Json]) -> RetryPolicy:
    backoff_seconds = _seconds(source, "backoff", 1.0)
    return RetryPolicy(
        max_attempts=source.get("max_attempts", DEFAULT_MAX_ATTEMPTS),
        backoff_seconds=backoff_seconds,
        factor=float(source.get("factor", 2.0)),
        # Who asks for a first delay of 5m and says nothing of a longest one doesn't mean 60s.
        max_backoff_seconds=_seconds(source, "max_backoff", max(60.0, backoff_seconds)),
        jitter=Jitter(source.get("jitter", Jitter.FULL)),
        on_interrupt=OnInterrupt(source.get("on_interrupt", OnInterrupt.RETRY)),
    )


def _seconds(source: Mapping[str, Json], key: str, default: float) -> float:
    return parse_duration(source[key]) if key in source else default


def check_retry(retry: Json, pointer: str, found: IssueCollector) -> None:
    """Find what is wrong with a step's `retry`."""
    if not isinstance(retry, dict):
        found.add(pointer, f"must be an object, not {kind_of(retry)}")
        return
    found.keys(retry, RETRY_KEYS, pointer)
    found.one_of(retry, "jitter", tuple(Jitter), pointer)
    found.one_of(retry, "on_interrupt", tuple(OnInterrupt), pointer)
    if "max_attempts" in retry:
        attempts = retry["max_attempts"]
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= MAX_ATTEMPTS:
            found.add(f"{pointer}/max_attempts", f"must be a whole number from 1 to {MAX_ATTEMPTS}")
    if "factor" in retry:
        factor = retry["factor"]
        if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 1 <= factor <= MAX_FACTOR:
            found.add(f"{pointer}/factor", f"must be a number from 1 to {MAX_FACTOR}")
    backoff = found.duration(retry["backoff"], f"{pointer}/backoff") if "backoff" in retry else 1.0
    if "max_backoff" in retry:
        longest = found.duration(retry["max_backoff"], f"{pointer}/max_backoff")
        if longest is not None and backoff is not None and longest < backoff:
            found.add(f"{pointer}/max_backoff", f"less than the first delay, `backoff` ({backoff:g}s)")
