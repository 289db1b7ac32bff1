"""JMESPath's meaning: a syntax tree of the library made into functions of a value and a budget.

The library's own interpreter looks each node up by name, makes what it likes, and can't be stopped between two nodes.
What a node means is what it means there, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from jmespath.exceptions import JMESPathTypeError
from jmespath.visitor import TreeInterpreter

from functions.engine.budget import Budget
from functions.engine.functions import Functions
from functions.engine.references import Tree
from functions.engine.values import Json

Evaluate = Callable[[Json, Budget], Json]
"""What a node gives for a value, within a budget. Raises `Refused`, and whatever Python can't compare or compute."""

_Call = Callable[[Budget, list[Json]], Json]

_FUNCTIONS: Any = Functions()
_COMPARATORS = TreeInterpreter.COMPARATOR_FUNC
_COPYING = 8
"""Parts that are copied in the time in which one is visited."""
_CHECKED = 2
"""Parts that a function checks the kind of in that time."""


class _Expression:
    """What stands after `&`. The library's functions know it by the name of its class."""

    def __init__(self, expression: Evaluate, budget: Budget) -> None:
        self.expression = expression
        self._budget = budget

    def visit(self, expression: Evaluate, value: Json) -> Json:
        """Its value for an element, as the library asks for it."""
        return expression(value, self._budget)


def build(node: Tree) -> Evaluate:
    """The function that a syntax tree stands for; recurses as deep as the tree."""
    return _BUILDERS[node["type"]](node)


def _true(value: Json) -> bool:
    return not (value is None or value is False or value == "" or value == [] or value == {})


# --- leaves: what they cost is paid where they are asked for --------------------------------------------------------


def _field(node: Tree) -> Evaluate:
    name = node["value"]
    return lambda value, budget: value.get(name) if isinstance(value, dict) else None


def _index(node: Tree) -> Evaluate:
    place = node["value"]

    def index(value: Json, budget: Budget) -> Json:
        return value[place] if isinstance(value, list) and -len(value) <= place < len(value) else None

    return index


def _literal(node: Tree) -> Evaluate:
    literal = node["value"]
    return lambda value, budget: literal


def _same(node: Tree) -> Evaluate:
    return lambda value, budget: value


def _expref(node: Tree) -> Evaluate:
    inner = build(node["children"][0])
    return lambda value, budget: _Expression(inner, budget)


def _slice(node: Tree) -> Evaluate:
    cut = slice(*node["children"])

    def take(value: Json, budget: Budget) -> Json:
        if not isinstance(value, list):
            return None
        _pay_copy(budget, len(range(*cut.indices(len(value)))))
        return value[cut]

    return take


# --- paths, logic, objects and lists --------------------------------------------------------------------------------


def _chain(node: Tree) -> Evaluate:
    """One after the other, each over what the last one gave."""
    parts = tuple(map(build, node["children"]))
    cost = 1 + len(parts)

    def chain(value: Json, budget: Budget) -> Json:
        budget.spend(cost)
        for part in parts:
            value = part(value, budget)
        return value

    return chain


def _comparator(node: Tree) -> Evaluate:
    compare, (left, right) = _COMPARATORS[node["value"]], map(build, node["children"])
    ordering = node["value"] not in ("eq", "ne")

    def compared(value: Json, budget: Budget) -> Json:
        budget.spend(3)
        one, other = left(value, budget), right(value, budget)
        if isinstance(one, str) and isinstance(other, str):
            budget.spend(0, min(len(one), len(other)))
        elif isinstance(one, (list, dict)) and isinstance(other, (list, dict)):
            budget.weigh((one, other))
        if ordering and not (_ordered(one) and _ordered(other)):
            return None
        return compare(one, other)

    return compared


def _ordered(value: Json) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _or(node: Tree) -> Evaluate:
    left, right = map(build, node["children"])

    def either(value: Json, budget: Budget) -> Json:
        budget.spend(3)
        found = left(value, budget)
        return found if _true(found) else right(value, budget)

    return either


def _and(node: Tree) -> Evaluate:
    left, right = map(build, node["children"])

    def both(value: Json, budget: Budget) -> Json:
        budget.spend(3)
        found = left(value, budget)
        return right(value, budget) if _true(found) else found

    return both


def _not(node: Tree) -> Evaluate:
    inner = build(node["children"][0])

    def negated(value: Json, budget: Budget) -> Json:
        budget.spend(2)
        found = inner(value, budget)
        # 0 is true in JMESPath.
        return not found and not (isinstance(found, (int, float)) and not isinstance(found, bool))

    return negated


def _pair(node: Tree) -> Evaluate:
    return build(node["children"][0])


def _object(node: Tree) -> Evaluate:
    members = tuple((child["value"], build(child)) for child in node["children"])
    cost = 1 + len(members)

    def made(value: Json, budget: Budget) -> Json:
        if value is None:
            return None
        budget.spend(cost)
        return {key: member(value, budget) for key, member in members}

    return made


def _list(node: Tree) -> Evaluate:
    items = tuple(map(build, node["children"]))
    cost = 1 + len(items)

    def made(value: Json, budget: Budget) -> Json:
        if value is None:
            return None
        budget.spend(cost)
        return [item(value, budget) for item in items]

    return made


# --- projections ----------------------------------------------------------------------------------------------------


def _projection(node: Tree) -> Evaluate:
    base, each = map(build, node["children"])

    def projected(value: Json, budget: Budget) -> Json:
        elements = base(value, budget)
        return _project(elements, each, budget) if isinstance(elements, list) else None

    return projected


def _value_projection(node: Tree) -> Evaluate:
    base, each = map(build, node["children"])

    def projected(value: Json, budget: Budget) -> Json:
        elements = base(value, budget)
        return _project(elements.values(), each, budget) if isinstance(elements, dict) else None

    return projected


def _project(elements: Any, each: Evaluate, budget: Budget) -> list[Json]:
    budget.spend(1 + len(elements), 8 * len(elements))
    return [found for element in elements if (found := each(element, budget)) is not None]


def _filter(node: Tree) -> Evaluate:
    base, each, condition = map(build, node["children"])

    def filtered(value: Json, budget: Budget) -> Json:
        elements = base(value, budget)
        if not isinstance(elements, list):
            return None
        budget.spend(1 + len(elements))
        return _project([element for element in elements if _true(condition(element, budget))], each, budget)

    return filtered


def _flatten(node: Tree) -> Evaluate:
    base = build(node["children"][0])

    def flat(value: Json, budget: Budget) -> Json:
        elements = base(value, budget)
        if not isinstance(elements, list):
            return None
        budget.spend(1 + len(elements))
        _pay_copy(budget, sum(len(element) for element in elements if isinstance(element, list)))
        merged: list[Json] = []
        for element in elements:
            merged.extend(element if isinstance(element, list) else (element,))
        return merged

    return flat


# --- functions ------------------------------------------------------------------------------------------------------


def _function(node: Tree) -> Evaluate:
    name, arguments = node["value"], tuple(map(build, node["children"]))
    cost = 1 + len(arguments)
    call: _Call = _BY_KEY.get(name) or partial(_called, name)

    def function(value: Json, budget: Budget) -> Json:
        budget.spend(cost)
        return call(budget, [argument(value, budget) for argument in arguments])

    return function


def _called(name: str, budget: Budget, given: list[Json]) -> Json:
    _pay_call(name, budget, given)
    return _FUNCTIONS.call_function(name, given)


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
        case "to_string", [list() | dict()]:
            budget.weigh(given, times=2)
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
            _pay_copy(budget, sum(len(value) for value in given if isinstance(value, (list, dict))))


def _pay_copy(budget: Budget, parts: int) -> None:
    budget.spend(parts // _COPYING, 8 * parts)


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
        _all_of("sort_by", items, keys, (int, float), ["number"] if _ordered(keys[0]) else ["string", "number"])
    rounds = len(items).bit_length()
    budget.spend(len(items) * rounds // _COPYING, rounds * _text(keys) + 8 * len(items))
    return [items[place] for place in sorted(range(len(items)), key=keys.__getitem__)]


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


_BY_KEY: dict[str, _Call] = {"sort_by": _sort_by, "min_by": _min_by, "max_by": _max_by}
_BUILDERS: dict[str, Callable[[Tree], Evaluate]] = {
    "field": _field,
    "index": _index,
    "literal": _literal,
    "identity": _same,
    "current": _same,
    "expref": _expref,
    "slice": _slice,
    "subexpression": _chain,
    "index_expression": _chain,
    "pipe": _chain,
    "comparator": _comparator,
    "or_expression": _or,
    "and_expression": _and,
    "not_expression": _not,
    "key_val_pair": _pair,
    "multi_select_dict": _object,
    "multi_select_list": _list,
    "projection": _projection,
    "value_projection": _value_projection,
    "filter_projection": _filter,
    "flatten": _flatten,
    "function_expression": _function,
}
