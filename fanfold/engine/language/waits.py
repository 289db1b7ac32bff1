"""What a `wait` step waits for: a time, or a signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.templates import Template, compile_template
from fanfold.engine.payload import Json


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


def wait_of(source: Mapping[str, Json]) -> WaitSpec:
    """The wait a checked document describes."""
    if "for" in source:
        return WaitFor(seconds=parse_duration(source["for"]))
    if "until" in source:
        moment, problems = compile_template(source["until"], "")
        if moment is None:
            raise InvalidDocument(tuple(problems))
        return WaitUntil(moment=moment)
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
