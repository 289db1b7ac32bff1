"""The functions of expressions: JMESPath's, held to what JSON can say, and paid before they are called."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from jmespath.exceptions import JMESPathTypeError
from jmespath.functions import Functions as Library
from jmespath.functions import signature

from fanfold.engine.language.budget import Budget
from fanfold.engine.payload import Json

Evaluate = Callable[[Json, Budget], Json]
"""What a node gives for a value, within a budget. Raises `Refused`, and whatever Python can't compare or compute."""

_Call = Callable[[Budget, list[Json]], Json]

_COPYING = 8
"""Parts that are copied in the time in which one is visited."""
_CHECKED = 2
"""Parts that a function checks the kind of in that time."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TYPES = {
    "array-number": "an array of numbers",
    "array-string": "an array of strings",
    "array": "an array",
    "object": "an object",
    "expref": "an expression after `&`",
    "null": "null",
}


class Functions(Library):  # type: ignore[misc]  # jmespath ships no types
    """The library's functions, but for those that differ from JMESPath or would give what is no JSON."""

    @signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_number(self, arg: Json) -> Json:
        """A number as it is, a text as the number that JSON writes so; null for anything else."""
        if isinstance(arg, (int, float)) and not isinstance(arg, bool):
            return arg
        found = _NUMBER.fullmatch(arg) if isinstance(arg, str) else None
        if found is None:
            return None
        return int(arg) if found[1] is None and found[2] is None else float(arg)

    @signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_string(self, arg: Json) -> str:
        """A text as it is, anything else as compact JSON. Raises TypeError or ValueError for what is no JSON."""
        return arg if isinstance(arg, str) else json.dumps(arg, separators=(",", ":"), allow_nan=False)


def wrong_argument(error: JMESPathTypeError) -> str:
    """What is wrong with a function's argument, in a sentence without the value, which may be of any size."""
    wanted = [_TYPES.get(kind, f"a {kind}") for kind in error.expected_types]
    return f"{error.function_name}() takes {_either(wanted)}, and was given {_type_of(error.current_value)}"


def _either(kinds: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))


def _type_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "an expression"


# --- what calls cost ----------------------------------------------------------------------------------------------


class _Expression:
    """What stands after `&`. The library's functions know it by the name of its class."""

    def __init__(self, expression: Evaluate, budget: Budget) -> None:
        self.expression = expression
        self._budget = budget

    def visit(self, expression: Evaluate, value: Json) -> Json:
        """Its value for an element, as the library asks for it."""
        return expression(value, self._budget)


def reference(expression: Evaluate, budget: Budget) -> Json:
    """What `&` makes of an expression: an argument of some functions, and no value."""
    return _Expression(expression, budget)


def function(name: str) -> _Call:
    """What calls this function with arguments, paid before."""
    return _BY_KEY.get(name) or partial(_called, name)


def _called(name: str, budget: Budget, given: list[Json]) -> Json:
    _pay_call(name, budget, given)
    value: Json = _FUNCTIONS.call_function(name, given)
    if type(value) is int:
        budget.weigh((value,))
    return value


def _pay_call(name: str, budget: Budget, given: list[Json]) -> None:
    """What the function is going to look at, and to make."""
    match name, given:
        case (("length" | "type" | "not_null" | "to_array"), _):
            pass
        case "reverse", [str(text)]:
            budget.spend(0, 2 * len(text))
        case "contains", [str(text), str(part)]:
            budget.spend(0, 4 * len(text) + len(part))
        case "contains", [list(items), str() | list() | dict()]:
            budget.weigh((given[1],))
            budget.weigh(items)
        case "to_number", [str(text)]:
            budget.spend(0, 16 * len(text))
        case (("starts_with" | "ends_with"), [str(), str(part)]):
            budget.spend(0, len(part))
        case "to_string", [list() | dict() | int() as value]:
            budget.write(value)
        case "join", [str(separator), list(items)]:
            budget.spend(len(items) // _CHECKED, 2 * len(separator) * len(items))
            budget.spend(0, 2 * _text(items))
        case (("sort" | "max" | "min"), [list(items)]):
            rounds = len(items).bit_length() if name == "sort" else 1
            budget.spend(len(items) // _CHECKED + len(items) * rounds // _COPYING, 8 * len(items))
            budget.spend(0, rounds * _text(items))
        case (("sum" | "avg"), [list(items)]):
            budget.spend(len(items) // _CHECKED)
        case "map", [_, list(items)]:
            budget.spend(len(items), 8 * len(items))
        case _:
            pay_copy(budget, sum(len(value) for value in given if isinstance(value, (list, dict))))


def _text(items: Iterable[Json]) -> int:
    return sum(len(item) for item in items if isinstance(item, str))


# The three functions that compare keys: all keys are made, and paid, before the first two are compared.


def _sort_by(budget: Budget, given: list[Json]) -> Json:
    items, keys = _keyed("sort_by", budget, given)
    if not items:
        return items
    if type(keys[0]) is str:
        _all_of("sort_by", items, keys, str, ["string"])
    else:
        _all_of("sort_by", items, keys, (int, float), ["number"] if ordered(keys[0]) else ["string", "number"])
    rounds = len(items).bit_length()
    budget.spend(len(items) * rounds // _COPYING, rounds * _text(keys) + 8 * len(items))
    return [items[slot] for slot in sorted(range(len(items)), key=keys.__getitem__)]


def _min_by(budget: Budget, given: list[Json]) -> Json:
    return _first_by("min_by", min, budget, given)


def _max_by(budget: Budget, given: list[Json]) -> Json:
    return _first_by("max_by", max, budget, given)


def _first_by(name: str, choose: Callable[..., int], budget: Budget, given: list[Json]) -> Json:
    items, keys = _keyed(name, budget, given)
    if not items:
        return None
    _all_of(name, items, keys, (int, float, str), ["number", "string"])
    budget.spend(len(items) // _COPYING, _text(keys))
    return items[choose(range(len(items)), key=keys.__getitem__)]


def _keyed(name: str, budget: Budget, given: list[Json]) -> tuple[list[Json], list[Json]]:
    for value, kind, wanted in ((given[0], list, "array"), (given[1], _Expression, "expref")):
        if not isinstance(value, kind):
            raise JMESPathTypeError(name, value, type(value).__name__, [wanted])
    items, expression = given[0], given[1].expression
    budget.spend(len(items), 8 * len(items))
    return items, [expression(item, budget) for item in items]


def _all_of(name: str, items: list[Json], keys: list[Json], kinds: Any, wanted: list[str]) -> None:
    for key in keys:
        if not isinstance(key, kinds) or isinstance(key, bool):
            raise JMESPathTypeError(name, key, type(key).__name__, wanted)


def pay_copy(budget: Budget, parts: int) -> None:
    """Pay for a list of so many parts that is made of another."""
    budget.spend(parts // _COPYING, 8 * parts)


def ordered(value: Json) -> bool:
    """Whether `<` has a meaning for the value: a number or a text."""
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


_FUNCTIONS: Any = Functions()
_BY_KEY: dict[str, _Call] = {"sort_by": _sort_by, "min_by": _min_by, "max_by": _max_by}
