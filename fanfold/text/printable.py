"""How text that somebody else wrote is shown: what would do something to a terminal is written out instead.

A run's data, a token's owner, an error's message may hold anything. Control characters (C0 and C1) move the cursor,
change what a terminal shows or make it answer; marks of direction let a text read as another; lone surrogates can't be
encoded at all.
"""

from __future__ import annotations

import re
from typing import Any

_UNSEEN = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
"""DEL and C1, separators of lines, marks of direction, the byte order mark, surrogates."""

_IN_A_VALUE = re.compile(f"[\0-\x1f{_UNSEEN}]")
_IN_LINES = re.compile(f"[\0-\x09\x0b-\x1f{_UNSEEN}]")
_IN_JSON = re.compile(f"[{_UNSEEN}]")


def shown(value: Any) -> str:
    """A value's text on one line, whatever is in it."""
    return _IN_A_VALUE.sub(_written_out, str(value))


def shown_lines(text: str) -> str:
    """A text of several lines: the same, but for the newlines."""
    return _IN_LINES.sub(_written_out, text)


def shown_json(text: str) -> str:
    """JSON text (C0 is written out in it by itself) that stands for the same value, and is safe to look at."""
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(_as_json, text)


def _written_out(found: re.Match[str]) -> str:
    character = found[0]
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    return short or (f"\\x{ord(character):02x}" if character < "\u0100" else f"\\u{ord(character):04x}")


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
