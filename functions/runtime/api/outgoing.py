"""Answers as JSON: the model every answer is made of, and how it is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict


def rfc3339(at: datetime) -> str:
    """UTC with milliseconds, as `2026-11-30T16:28:00.123Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Outgoing(BaseModel):
    """An answer; serialised by `to_json` alone."""

    # Built at first use: no cold start waits for models its call does not need.
    model_config = ConfigDict(frozen=True, defer_build=True)


def to_json(answer: object) -> bytes:
    """Compact ASCII JSON of models, times and plain values.

    Not pydantic's own serialiser: payloads in the answer may be nested deeper than it follows.
    """
    return json.dumps(answer, default=_plain, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain(value: object) -> object:
    match value:
        case BaseModel():
            given: dict[str, object] = {}
            for name, info in type(value).model_fields.items():
                part = getattr(value, name)
                if info.exclude_if is None or not info.exclude_if(part):
                    given[info.serialization_alias or name] = part
            return {**given, **(value.model_extra or {})}
        case datetime():
            return rfc3339(value)
        case _:
            raise TypeError(f"{type(value).__name__} is no part of an answer")


def is_nothing(value: object) -> bool:
    """Whether a member that says nothing is left out of its answer: null, or an empty list."""
    return value is None or value == []
