"""Payloads: JSON values, and references to those too big for the record.

A payload is either inline (any JSON value) or a `BlobRef` naming an object in S3. Where an
expression needs what a reference stands for, the shell hands the loaded value in as `Loaded`;
what is not loaded yet makes `ValuesMissing`, the shell loads it and asks again (asking is free,
the engine is pure).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]  # not in the stubs
from typing import Any

from fanfold.engine.errors import PayloadLost

Json = Any
"""A JSON value: None, bool, int, finite float, str, list or dict with str keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """A payload stored as a JSON object in the bucket: its key, size in bytes, SHA-256 (hex)."""

    key: str
    bytes: int
    sha256: str


Value = Json | BlobRef
Loaded = Mapping[str, Any]
"""Payloads, and checkpoints of sealed steps, by the key of their reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedStep:
    """The checkpoint of a step that lies in a segment of the record; loaded, it stands under `key`."""

    step: str

    @property
    def key(self) -> str:
        """A key that no payload has: theirs begin with a tenant."""
        return f"\0{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Stands among what was loaded for what is gone, or is not what was stored."""

    detail: str


class ValuesMissing(LookupError):
    """Not an error but a request: load these references and ask again."""

    def __init__(self, refs: Iterable[BlobRef | SealedStep]) -> None:
        super().__init__("referenced payloads are not loaded")
        self.refs = tuple(refs)


def resolve(value: Value, loaded: Loaded) -> Json:
    """The JSON a value stands for; raises `ValuesMissing` when its reference is not loaded, `PayloadLost`."""
    return of_loaded(value, loaded) if isinstance(value, BlobRef) else value


def of_loaded(ref: BlobRef | SealedStep, loaded: Loaded) -> Any:
    """What was loaded for a reference; raises `ValuesMissing` when nothing was, `PayloadLost` when it is lost."""
    if ref.key not in loaded:
        raise ValuesMissing([ref])
    found = loaded[ref.key]
    if isinstance(found, Lost):
        raise PayloadLost(found.detail)
    return found


def _not_json(value: object) -> Json:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _compact() -> Callable[[Json], str]:
    """What `json.dumps` does with the same arguments, which makes an encoder for each call: half of its time."""
    make: Any = c_make_encoder
    if make is None:  # a Python without the C accelerator
        return json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    chunks = make(None, _not_json, encode_basestring_ascii, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_to_json = _compact()
"""Compact ASCII JSON of a value that contains itself nowhere."""


def dump(value: Json) -> bytes:
    """Compact ASCII JSON of a value.

    Raises ValueError or TypeError for what is no JSON: NaN, infinities, keys that are no strings,
    other Python objects, values that contain themselves.
    """
    if isinstance(value, (dict, list, tuple)):
        _check_keys(value)
    return _to_json(value).encode("ascii")


_to_canonical = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True).encode


def fingerprint(value: Json) -> str:
    """SHA-256 (hex) of a JSON value, whatever the order of its keys and the spaces it was sent with."""
    return hashlib.sha256(_to_canonical(value).encode("ascii")).hexdigest()


def _check_keys(value: Json) -> None:
    """json.dumps turns keys like 1 and None into strings without a word; a record must not.

    Nothing is made for each part: a value may have a million, and a worker's loop waits for it.
    """
    open_parts: list[Iterator[Json]] = [iter((value,))]
    seen = 0
    while open_parts:
        for item in open_parts[-1]:
            if not isinstance(item, (dict, list, tuple)) or not item:
                continue
            seen += 1
            if isinstance(item, dict):
                for key in item:
                    if not isinstance(key, str):
                        raise TypeError(f"an object's key must be a string, not {type(key).__name__}")
                open_parts.append(iter(item.values()))
            else:
                open_parts.append(iter(item))
            # The deepest part comes first, so that a value within itself is found at once.
            if len(open_parts) > 1_000 or seen > 5_000_000:
                raise ValueError("the value contains itself, or is nested too deeply, or has too many parts")
            break
        else:
            open_parts.pop()


MAX_DEPTH = 100
"""How deep a payload may be nested: a record that holds it must stay far from where Python's JSON gives up."""


def dump_payload(value: Json) -> bytes:
    """`dump` for what comes from outside, an input or an output: also refuses nesting over `MAX_DEPTH`.

    Raises ValueError or TypeError.
    """
    try:
        data = dump(value)
    except RecursionError as error:
        raise ValueError("the value is nested too deeply") from error
    # Counting brackets is quick and settles it for nearly every value.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise ValueError(f"the value is nested more than {MAX_DEPTH} levels deep")
    return data


def deeper_than(value: Json, levels: int) -> bool:
    """Whether more than so many lists and objects lie within each other."""
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(levels):
        parts = [part for item in level for part in (item.values() if isinstance(item, dict) else item)]
        level = [part for part in parts if isinstance(part, (dict, list, tuple))]
        if not level:
            return False
    return True


def parse(text: bytes | str) -> Json:
    """JSON of a stranger: refuses what JSON leaves open. Raises ValueError with a sentence.

    Refused: NaN and infinities (also numbers that overflow to one), duplicate keys, nesting
    deeper than Python's parser follows.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique_keys)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:100]!r} occurs twice in one object")
            seen.add(key)
    return result
