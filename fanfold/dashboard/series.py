"""What metric math calculates with: numbers, series, arrays of series; and the operators between them.

A series is one value or None per period, all from the same start: aligned by their place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from fanfold.dashboard.formula import FormulaError

Series = tuple[float | None, ...]
Array = list[Series]
Value = float | Series | Array | str
"""A word is only ever an argument: REPEAT, or a part of an id."""


def kind(value: Value) -> str:
    """What a value is, in words for an error."""
    match value:
        case float():
            return "a number"
        case list():
            return "an array"
        case tuple():
            return "a series"
        case str():
            return f"the word {value!r}"


def series_of(value: Value) -> Array:
    """The series that a value has. Raises `FormulaError` for a number or a word."""
    if isinstance(value, tuple):
        return [value]
    if isinstance(value, list):
        return value
    raise FormulaError(f"a series was expected, found {kind(value)}")


def each(value: Value, act: Callable[[float], float]) -> Value:
    """The value with every number in it changed; what is missing stays missing."""
    if isinstance(value, float):
        return act(value)
    changed = [tuple(None if v is None else act(v) for v in series) for series in series_of(value)]
    return changed[0] if isinstance(value, tuple) else changed


def _divide(left: float, right: float) -> float | None:
    return None if right == 0 else left / right


def _power(left: float, right: float) -> float | None:
    try:
        raised = left**right
    except (ZeroDivisionError, OverflowError):
        return None  # as a division by zero: the point is dropped
    return raised if isinstance(raised, float) else None  # a root of a negative number is none


_OPERATORS: Mapping[str, Callable[[float, float], float | None]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "^": _power,
    "==": lambda a, b: float(a == b),
    "!=": lambda a, b: float(a != b),
    "<=": lambda a, b: float(a <= b),
    ">=": lambda a, b: float(a >= b),
    "<": lambda a, b: float(a < b),
    ">": lambda a, b: float(a > b),
    "AND": lambda a, b: float(a != 0 and b != 0),
    "OR": lambda a, b: float(a != 0 or b != 0),
}


def operate(sign: str, left: Value, right: Value) -> Value:
    """What an operator makes of two values. Raises `FormulaError` where it makes nothing of them."""
    if isinstance(left, str) or isinstance(right, str):
        raise FormulaError(f"{sign} has {kind(left)} and {kind(right)} at its sides")
    if isinstance(left, float) and isinstance(right, float):
        result = _OPERATORS[sign](left, right)
        if result is None:
            raise FormulaError(f"{left:g} {sign} {right:g} has no value")
        return result
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            raise FormulaError(f"{sign} between arrays of {len(left)} and {len(right)} series")
        return [_pair(sign, a, b) for a, b in zip(left, right, strict=True)]
    if isinstance(left, list):
        assert not isinstance(right, list)
        return [_pair(sign, one, right) for one in left]
    if isinstance(right, list):
        return [_pair(sign, left, one) for one in right]
    return _pair(sign, left, right)


def _pair(sign: str, left: float | Series, right: float | Series) -> Series:
    """Slot by slot. What is missing on one side counts as 0 there; missing on both, it stays missing."""
    act = _OPERATORS[sign]
    if isinstance(left, float):
        assert isinstance(right, tuple)
        return tuple(None if b is None else act(left, b) for b in right)
    if isinstance(right, float):
        return tuple(None if a is None else act(a, right) for a in left)
    return tuple(None if a is None and b is None else act(a or 0.0, b or 0.0) for a, b in zip(left, right, strict=True))
