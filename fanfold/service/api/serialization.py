"""Answers as JSON: the model every answer is made of, and how it is written."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict


def rfc3339(at: datetime) -> str:
    """UTC with milliseconds, as `2026-11-30T16:28:00.123Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON in ASCII that is written into an answer as it is: read and written anew it would take ten times the room."""

    data: bytes


class Outgoing(BaseModel):
    """An answer; serialised by `to_json` alone."""

    # Built at first use: no cold start waits for models its call does not need.
    model_config = ConfigDict(frozen=True, defer_build=True)


def to_json(answer: object) -> bytes:
    """Compact ASCII JSON of models, times and plain values.

    Not pydantic's own serialiser: payloads in the answer may be nested deeper than it follows.
    """
    verbatim: list[bytes] = []

    def plain(value: object) -> object:
        if isinstance(value, Verbatim):
            verbatim.append(value.data)
            return _HOLE
        return _plain(value)

    text = json.dumps(answer, default=plain, separators=(",", ":"), allow_nan=False).encode("ascii")
    if not verbatim:
        return text
    pieces = text.split(_HOLE_AS_JSON)
    assert len(pieces) == len(verbatim) + 1, "no payload says what was drawn in this process"
    return b"".join(part for both in zip(pieces, [*verbatim, b""], strict=True) for part in both)


_HOLE = f"verbatim {secrets.token_hex(16)}"
"""Stands in a text for what is put there: drawn for each process, so that no payload has it in it."""
_HOLE_AS_JSON = json.dumps(_HOLE).encode("ascii")


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
