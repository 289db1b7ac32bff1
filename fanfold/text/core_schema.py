"""YAML's scalars without quotes → JSON, by the core schema (YAML 1.2.2, section 10.3.2): `no` and `12:30` are texts."""

from __future__ import annotations

import math
import re

from fanfold.engine.payload import Json

MAX_DIGITS = 4_300
"""Python reads and writes no longer integers (`sys.set_int_max_str_digits`)."""
MAX_HEX_DIGITS = 3_500
"""What always fits into so many decimal digits."""

_WORDS: dict[str, Json] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def plain_scalar(text: str) -> Json:
    """What a scalar without quotes stands for. Raises ValueError, a sentence, for a number that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(_short(text, MAX_DIGITS))
    if _OTHER_BASE.fullmatch(text):
        return int(_short(text, MAX_HEX_DIGITS), 0)
    if _FLOAT.fullmatch(text):
        if math.isfinite(number := float(text)):
            return number
        raise ValueError(f"the number {text[:40]} is out of range")
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not JSON")
    return text


def _short(number: str, most: int) -> str:
    if len(number.lstrip("+-")) > most:
        raise ValueError(f"the number has more than {most:,} digits")
    return number
