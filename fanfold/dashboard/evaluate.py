"""Metric math, evaluated here: the emulator has none, and a picture must not depend on who can calculate.

The rules for missing values and zeros are those of the CloudWatch user guide, "Metric math syntax and functions".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fanfold.dashboard.formula import Call, Formula, FormulaError, Listing, Name, Negative, Number, Operation, Word
from fanfold.dashboard.series import Array, Series, Value, each, kind, operate, series_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an expression is evaluated on: series by id, each of `slots` periods of `period_seconds`.

    `metrics` says which of the ids METRICS() means, in the page's order; the others are expressions.
    """

    series: Mapping[str, Series]
    metrics: Sequence[str]
    period_seconds: int
    slots: int


def evaluate(tree: Formula, given: Given) -> Sequence[Series]:
    """The series an expression gives: one, or several for an array.

    Raises `FormulaError` for an unknown id or function, for arguments of the wrong kind, and for an expression
    that gives a single number, which CloudWatch refuses too.
    """
    value = _value(tree, given)
    if isinstance(value, float | str):
        raise FormulaError(f"gives {kind(value)}, and not a series over time")
    return series_of(value)


def _value(tree: Formula, given: Given) -> Value:
    match tree:
        case Number(value=number):
            return number
        case Word(text=text):
            return text
        case Name(id=id_):
            if id_ not in given.series:
                raise FormulaError(f"there is no metric or expression with the id {id_!r}")
            return given.series[id_]
        case Listing(parts=parts):
            return [series for part in parts for series in series_of(_value(part, given))]
        case Negative(of=part):
            return each(_value(part, given), lambda number: -number)
        case Operation(operator=sign, left=left, right=right):
            return operate(sign, _value(left, given), _value(right, given))
        case Call(function=name, arguments=arguments):
            return _call(name, arguments, given)


def _call(name: str, arguments: Sequence[Formula], given: Given) -> Value:
    if name == "METRICS":
        return _metrics(arguments, given)
    if name == "PERIOD":
        if len(arguments) != 1 or not isinstance(arguments[0], Name) or arguments[0].id not in given.metrics:
            raise FormulaError("PERIOD takes the id of one metric")
        return float(given.period_seconds)
    known = _FUNCTIONS.get(name)
    if known is None:
        there_are = ", ".join(sorted([*_FUNCTIONS, "METRICS", "PERIOD"]))
        raise FormulaError(f"{name} is no function known here; there are: {there_are}")
    least, most, function = known
    if not least <= len(arguments) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise FormulaError(f"{name} takes {wanted} arguments, not {len(arguments)}")
    return function(name, [_value(argument, given) for argument in arguments], given)


def _metrics(arguments: Sequence[Formula], given: Given) -> Array:
    match list(arguments):
        case []:
            return [given.series[id_] for id_ in given.metrics]
        case [Word(text=part)]:
            return [given.series[id_] for id_ in given.metrics if part in id_]
    raise FormulaError("METRICS takes nothing, or a quoted part of the ids it means")


def _present(series: Sequence[float | None]) -> list[float]:
    return [value for value in series if value is not None]


_AGGREGATES: Mapping[str, Callable[[list[float], int], float]] = {
    "SUM": lambda there, most: math.fsum(there),
    "AVG": lambda there, most: math.fsum(there) / most,
    "MIN": lambda there, most: min(there),
    "MAX": lambda there, most: max(there),
    "DATAPOINT_COUNT": lambda there, most: float(len(there)),
}
"""What there is at one place, and how many series there are: in an average of several what is missing counts as 0."""


def _aggregate(name: str, arguments: Sequence[Value], given: Given) -> Value:
    """Of one series its number, of an array a series."""
    (value,) = arguments
    if isinstance(value, tuple):
        there = _present(value)
        # Of nothing only the sum is defined; for the others 0 is at least seen.
        return _AGGREGATES[name](there, len(there)) if there else 0.0
    array = series_of(value)
    slots = zip(*array, strict=True) if array else [()] * given.slots
    return tuple(_AGGREGATES[name](there, len(array)) if (there := _present(slot)) else None for slot in slots)


def _fill(name: str, arguments: Sequence[Value], given: Given) -> Value:
    value, filler = arguments
    filled = [_filled(series, filler) for series in series_of(value)]
    return filled[0] if isinstance(value, tuple) else filled


def _filled(series: Series, filler: Value) -> Series:
    match filler:
        case "REPEAT":
            return tuple(itertools.accumulate(series, lambda last, value: last if value is None else value))
        case "LINEAR":
            return _interpolated(series)
        case float():
            return tuple(filler if value is None else value for value in series)
        case tuple():
            return tuple(f if v is None else v for v, f in zip(series, filler, strict=True))
    raise FormulaError(f"FILL fills with a number, a series, REPEAT or LINEAR, not with {kind(filler)}")


def _interpolated(series: Series) -> Series:
    out = list(series)
    there = [(at, value) for at, value in enumerate(series) if value is not None]
    for (begin, low), (end, high) in itertools.pairwise(there):
        for at in range(begin + 1, end):
            out[at] = low + (high - low) * (at - begin) / (end - begin)
    return tuple(out)


def _if(name: str, arguments: Sequence[Value], given: Given) -> Value:
    condition, *choices = arguments
    sides = [_side(choice, given) for choice in choices]
    if len(sides) == 1:
        sides.append((None,) * given.slots)
    if isinstance(condition, float):
        return sides[0] if condition != 0 else sides[1]
    if not isinstance(condition, tuple):
        raise FormulaError(f"IF asks a number or a series, not {kind(condition)}")

    def chosen(holds: float | None, then: float | None, otherwise: float | None) -> float | None:
        if holds is None:
            return None
        return otherwise if holds == 0 else then or 0.0  # what is missing where it holds is 0, so says the guide

    return tuple(itertools.starmap(chosen, zip(condition, *sides, strict=True)))


def _side(value: Value, given: Given) -> Series:
    if isinstance(value, float):
        return (value,) * given.slots
    if isinstance(value, tuple):
        return value
    raise FormulaError(f"IF chooses between numbers and series, not {kind(value)}")


def _changes(name: str, arguments: Sequence[Value], given: Given) -> Value:
    (value,) = arguments
    changed = [_changed(series, given.period_seconds if name == "RATE" else None) for series in series_of(value)]
    return changed[0] if isinstance(value, tuple) else changed


def _changed(series: Series, per_seconds: int | None) -> Series:
    """Each value less the one before it, however far that is; by seconds, if there is a period."""
    out: list[float | None] = []
    before: tuple[int, float] | None = None
    for at, value in enumerate(series):
        if value is None:
            out.append(None)
            continue
        if before is None:
            out.append(None)
        else:
            seconds = 1 if per_seconds is None else (at - before[0]) * per_seconds
            out.append((value - before[1]) / seconds)
        before = (at, value)
    return tuple(out)


_ROUNDINGS: Mapping[str, Callable[[float], float]] = {
    "ABS": abs,
    "CEIL": lambda number: float(math.ceil(number)),
    "FLOOR": lambda number: float(math.floor(number)),
}


def _rounded(name: str, arguments: Sequence[Value], given: Given) -> Value:
    return each(arguments[0], _ROUNDINGS[name])


def _flat(name: str, arguments: Sequence[Value], given: Given) -> Value:
    (value,) = arguments
    if not isinstance(value, float):
        raise FormulaError(f"TIME_SERIES takes a number, not {kind(value)}")
    return (value,) * given.slots


_Function = Callable[[str, Sequence[Value], Given], Value]
_FUNCTIONS: Mapping[str, tuple[int, int, _Function]] = {
    **dict.fromkeys(_AGGREGATES, (1, 1, _aggregate)),
    **dict.fromkeys(("RATE", "DIFF"), (1, 1, _changes)),
    **dict.fromkeys(_ROUNDINGS, (1, 1, _rounded)),
    "FILL": (2, 2, _fill),
    "IF": (2, 3, _if),
    "TIME_SERIES": (1, 1, _flat),
}
"""A function's fewest and most arguments, and what it does."""
