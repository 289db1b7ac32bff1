"""What a JMESPath syntax tree reads of a run's scope, found without evaluating it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Tree = Mapping[str, Any]
"""A node of jmespath's syntax tree: `type`, `children`, for some types `value`."""

ROOTS = ("input", "steps", "run", "item", "index")
"""What a scope may hold; `item` and `index` only inside a map."""
FACETS = ("status", "output", "error")
"""What can be read of a step."""

# The nodes whose first child is evaluated over the scope and whose others over what that gave.
_PIPING = frozenset(
    {
        "subexpression",
        "index_expression",
        "pipe",
        "projection",
        "value_projection",
        "filter_projection",
        "flatten",
    }
)


@dataclass(slots=True, kw_only=True)
class References:
    """What a tree reads, and what of it can't be allowed, in sentences."""

    roots: set[str] = field(default_factory=set)
    steps: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def walk(tree: Tree) -> Iterator[Tree]:
    """Every node of a tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(_children(node))


def depth_of(tree: Tree) -> int:
    """Levels of a tree, counted without recursion."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [child for node in level for child in _children(node)]
    return depth


def references(tree: Tree) -> References:
    """What the tree reads of the scope. Where in doubt a step's output counts as read."""
    found = References()
    _over_scope(tree, found)
    return found


def _children(node: Tree) -> list[Tree]:
    # A slice's children are numbers.
    return [child for child in node["children"] if isinstance(child, dict)]


def _over_scope(node: Tree, found: References) -> None:
    kind = node["type"]
    if kind == "subexpression":
        _path(node["children"], found)
    elif kind == "field":
        _root(node["value"], found)
        if node["value"] == "steps":
            found.problems.append("`steps` must be followed by a step's name: steps.NAME.output")
    elif kind in _PIPING:
        _over_scope(node["children"][0], found)
    elif kind in ("current", "identity"):
        found.problems.append(f"it must begin with a name: {', '.join(ROOTS)}")
    elif kind == "expref":
        found.problems.append("`&` belongs inside a function's parentheses")
    elif kind == "function_expression":
        for child in _children(node):
            # What stands after `&` is applied to the elements of another argument, not to the scope.
            if child["type"] != "expref":
                _over_scope(child, found)
    else:
        for child in _children(node):
            _over_scope(child, found)


def _path(parts: list[Tree], found: References) -> None:
    first = parts[0]
    if first["type"] != "field" or first["value"] != "steps":
        _over_scope(first, found)
        return
    _root("steps", found)
    if parts[1]["type"] != "field":
        found.problems.append("`steps` must be followed by a step's name: steps.NAME.output")
        return
    name = parts[1]["value"]
    found.steps.add(name)
    facet = parts[2]["value"] if len(parts) > 2 and parts[2]["type"] == "field" else None
    if facet in ("status", "error"):
        return
    found.outputs.add(name)
    if facet is not None and facet != "output":
        found.problems.append(f"a step has {', '.join(FACETS)}, but no {facet}")


def _root(name: str, found: References) -> None:
    found.roots.add(name)
    if name not in ROOTS:
        hint = f" (the literal is written `` `{name}` ``)" if name in ("null", "true", "false") else ""
        found.problems.append(f"there is no `{name}`; there is {', '.join(ROOTS)}{hint}")
