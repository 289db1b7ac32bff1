"""A step that waits for a time, or for a signal: `wait: {for: 90s}`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.issues import kind_of
from fanfold.engine.language.step import AnyStep, StepKind, fields_of, template_of
from fanfold.engine.language.templates import Slot, Template
from fanfold.engine.payload import Json

if TYPE_CHECKING:
    from fanfold.engine.language.step_checks import StepChecks

WAIT_KEYS = ("for", "until", "signal", "timeout")
SIGNAL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """So many seconds from the step's turn on."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitUntil:
    """A moment: the ISO 8601 time that the template gives. One that is past waits for nothing."""

    moment: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSignal:
    """A signal of this name; after `timeout_seconds` without one (None: the run's own timeout) the step fails."""

    name: str
    timeout_seconds: float | None


WaitSpec = WaitFor | WaitUntil | WaitSignal


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStep(AnyStep):
    """A step that calls nothing and waits. It holds no worker meanwhile."""

    wait: WaitSpec

    @property
    def own_templates(self) -> tuple[Template, ...]:
        """The moment, where it is an expression."""
        return (self.wait.moment,) if isinstance(self.wait, WaitUntil) else ()


def _check(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> Sequence[Slot]:
    """Check what a step waits for; its expressions come back."""
    checks.no_call(step, pointer, "a wait", {"timeout": "; a wait's `timeout` stands inside `wait`"})
    wait, pointer = step["wait"], f"{pointer}/wait"
    if not isinstance(wait, dict):
        checks.add(pointer, f"must be an object, not {kind_of(wait)}")
        return ()
    checks.found.keys(wait, WAIT_KEYS, pointer)
    given = [key for key in WAIT_KEYS[:3] if key in wait]
    if len(given) != 1:
        names = " and ".join(f"`{key}`" for key in given) or "none"
        checks.add(pointer, f"a wait has exactly one of `for`, `until` and `signal`; this one has {names}")
    if "signal" in wait and not (isinstance(wait["signal"], str) and SIGNAL_NAME.fullmatch(wait["signal"])):
        checks.add(f"{pointer}/signal", "a signal's name is a-z, then up to 62 of a-z, 0-9, _ and -")
    if "timeout" in wait and "signal" not in wait:
        checks.add(f"{pointer}/timeout", "only a wait for a signal has a `timeout`")
    for key in ("for", "timeout"):
        if key in wait:
            checks.within_the_run(checks.found.duration(wait[key], f"{pointer}/{key}"), f"{pointer}/{key}")
    return _check_until(wait["until"], f"{pointer}/until", checks) if "until" in wait else ()


def _check_until(until: Json, pointer: str, checks: StepChecks) -> Sequence[Slot]:
    if not isinstance(until, str):
        checks.add(pointer, f"must be a time, or an expression that gives one, not {kind_of(until)}")
        return ()
    reading = checks.expressions(until, pointer)
    if not reading.slots and not reading.problems:
        try:
            moment_of(until)
        except ValueError as error:
            checks.add(pointer, str(error))
    return reading.slots


def _parse(name: str, source: Mapping[str, Json], max_step_seconds: float) -> WaitStep:
    return WaitStep(**fields_of(name, source), wait=_wait_of(source["wait"]))


def _wait_of(source: Mapping[str, Json]) -> WaitSpec:
    if "for" in source:
        return WaitFor(seconds=parse_duration(source["for"]))
    if "until" in source:
        return WaitUntil(moment=template_of(source["until"]))
    timeout = source.get("timeout")
    return WaitSignal(name=source["signal"], timeout_seconds=None if timeout is None else parse_duration(timeout))


def moment_of(value: Json) -> datetime:
    """The time an `until` says, in whole milliseconds. Raises ValueError with a sentence."""
    if not isinstance(value, str):
        raise ValueError("`until` must be an ISO 8601 time such as 2026-12-24T18:00:00Z")
    try:
        moment = datetime.fromisoformat(value)
        # Without an offset nobody can tell which moment it is.
        aware = None if moment.utcoffset() is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"`until` is no ISO 8601 time: {value[:80]!r}") from error
    if aware is None:
        raise ValueError(f"`until` has no offset from UTC (such as Z): {value[:80]!r}")
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)


WAIT = StepKind(key="wait", check=_check, parse=_parse)
