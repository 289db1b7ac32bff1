"""The part of CloudWatch's metric maths that our page and alarms use, at one moment: the emulator has none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FUNCTIONS = {
    "FILL": lambda value, other: other if value is None else value,
    "IF": lambda condition, then, other=None: then if condition else other,
    "MAX": max,
    "SUM": sum,
}


def value(expression: str, given: Mapping[str, float | None]) -> float:
    """What an expression is where its metrics have these values, by id. Raises NameError for what it doesn't know."""
    found: float = eval(expression, {"__builtins__": {}}, {**FUNCTIONS, **given})
    return found


def names(expression: str) -> Sequence[str]:
    """The ids and functions an expression names; operators are written as in Python."""
    return compile(expression, "expression", "eval").co_names
