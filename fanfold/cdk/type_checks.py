"""Type checks for configuration documents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def check_kinds(given: Mapping[str, Any], described: type) -> None:
    """Raise ValueError for a value of the wrong type. `described` is the dataclass with the fields.

    Checks numbers, strings and booleans, and no other fields.
    """
    kinds = {f.name: str(f.type) for f in fields(described)}
    for name, value in given.items():
        kind = kinds.get(name, "")
        if value is None and kind.endswith("| None"):
            continue
        match kind.removesuffix(" | None"):
            case "int":
                check_whole(name, value)
            case "float" if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"{name} is a number, not {value!r}")
            case "bool" if not isinstance(value, bool):
                raise ValueError(f"{name} is true or false, not {value!r}")
            case "str" if not isinstance(value, str):
                raise ValueError(f"{name} is a text, not {value!r}")


def check_whole(name: str, value: object) -> None:
    """Raise ValueError unless the value is an integer; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is a whole number, not {value!r}")
