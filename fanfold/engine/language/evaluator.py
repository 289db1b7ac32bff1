"""JMESPath's meaning: a syntax tree of the library made into functions of a value and a budget.

The library's own interpreter looks each node up by name, makes what it likes, and can't be stopped between two nodes.
What a node means is what it means there, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jmespath.visitor import TreeInterpreter

from fanfold.engine.language.budget import Budget
from fanfold.engine.language.functions import Evaluate, function, ordered, pay_copy, reference
from fanfold.engine.language.references import Tree
from fanfold.engine.payload import Json

_COMPARATORS = TreeInterpreter.COMPARATOR_FUNC


def build(node: Tree) -> Evaluate:
    """The function that a syntax tree stands for; recurses as deep as the tree."""
    return _BUILDERS[node["type"]](node)


def _true(value: Json) -> bool:
    return not (value is None or value is False or value == "" or value == [] or value == {})


# --- leaves: what they cost is paid where they are asked for --------------------------------------------------------


def _field(node: Tree) -> Evaluate:
    return _named(node["value"])


@lru_cache(maxsize=1_024)
def _named(name: str) -> Evaluate:
    """One function for each name: documents name the same fields again and again."""
    return lambda value, budget: value.get(name) if isinstance(value, dict) else None


def _index(node: Tree) -> Evaluate:
    slot = node["value"]

    def index(value: Json, budget: Budget) -> Json:
        return value[slot] if isinstance(value, list) and -len(value) <= slot < len(value) else None

    return index


def _literal(node: Tree) -> Evaluate:
    literal = node["value"]
    return lambda value, budget: literal


def _same(node: Tree) -> Evaluate:
    return lambda value, budget: value


def _expref(node: Tree) -> Evaluate:
    inner = build(node["children"][0])
    return lambda value, budget: reference(inner, budget)


def _slice(node: Tree) -> Evaluate:
    cut = slice(*node["children"])

    def take(value: Json, budget: Budget) -> Json:
        if not isinstance(value, list):
            return None
        pay_copy(budget, len(range(*cut.indices(len(value)))))
        return value[cut]

    return take


# --- paths, logic, objects and lists --------------------------------------------------------------------------------


def _chain(node: Tree) -> Evaluate:
    """One after the other, each over what the last one gave."""
    if all(child["type"] == "field" for child in node["children"]):
        return _path(tuple(child["value"] for child in node["children"]))
    parts = tuple(map(build, node["children"]))
    cost = 1 + len(parts)

    def chain(value: Json, budget: Budget) -> Json:
        budget.spend(cost)
        for part in parts:
            value = part(value, budget)
        return value

    return chain


def _path(names: tuple[str, ...]) -> Evaluate:
    cost = 1 + len(names)

    def path(value: Json, budget: Budget) -> Json:
        budget.spend(cost)
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return path


def _comparator(node: Tree) -> Evaluate:
    compare, (left, right) = _COMPARATORS[node["value"]], map(build, node["children"])
    ordering = node["value"] not in ("eq", "ne")

    def compared(value: Json, budget: Budget) -> Json:
        budget.spend(2)
        one, other = left(value, budget), right(value, budget)
        if isinstance(one, str) and isinstance(other, str):
            budget.spend(0, min(len(one), len(other)))
        elif isinstance(one, (list, dict)) and isinstance(other, (list, dict)):
            budget.weigh((one, other))
        if ordering and not (ordered(one) and ordered(other)):
            return None
        return compare(one, other)

    return compared


def _or(node: Tree) -> Evaluate:
    left, right = map(build, node["children"])

    def either(value: Json, budget: Budget) -> Json:
        budget.spend(2)
        found = left(value, budget)
        return found if _true(found) else right(value, budget)

    return either


def _and(node: Tree) -> Evaluate:
    left, right = map(build, node["children"])

    def both(value: Json, budget: Budget) -> Json:
        budget.spend(2)
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
        pay_copy(budget, sum(len(element) for element in elements if isinstance(element, list)))
        merged: list[Json] = []
        for element in elements:
            merged.extend(element if isinstance(element, list) else (element,))
        return merged

    return flat


# --- functions ------------------------------------------------------------------------------------------------------


def _function(node: Tree) -> Evaluate:
    name, arguments = node["value"], tuple(map(build, node["children"]))
    cost = 1 + len(arguments)
    call = function(name)

    def called(value: Json, budget: Budget) -> Json:
        budget.spend(cost)
        return call(budget, [argument(value, budget) for argument in arguments])

    return called


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
