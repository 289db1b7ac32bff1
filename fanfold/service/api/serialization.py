"""The base model of answers, and their JSON encoding."""

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
    """ASCII JSON that is copied into an answer. Decoding and encoding it would take ten times the memory."""

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
"""A random placeholder for each process, which no payload can contain."""
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
    """Whether a member is left out of an answer: null, or an empty list."""
    return value is None or value == []
