"""What a template is made of, and how it is evaluated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fanfold.engine.language.budget import Budget
from fanfold.engine.language.expressions import Expression, ExpressionError, TooLarge
from fanfold.engine.payload import Json, dump

MAX_TEXT = 5_000_000
"""Longest text, in characters, that putting values into a string may give: the biggest payload there is."""
_MEASURED = 4
"""Writing a value only to see how long it is takes so many times as long as going through a text of that length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A JSON value as it is."""

    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text into which values are put."""

    parts: tuple[str | Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A list with something to evaluate in it."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """An object with something to evaluate in its values."""

    members: Mapping[str, Node]


Node = Constant | Expression | Text | Array | Object


class Room:
    """Bytes of JSON that may still be made. `sizes` has those that are known, by the identity of the value."""

    def __init__(self, bytes: int, sizes: Mapping[int, int], budget: Budget) -> None:
        self._most = self._left = bytes
        self._sizes = dict(sizes)
        self._budget = budget

    def take(self, bytes: int) -> None:
        """Raises `TooLarge` once there is no more."""
        self._left -= bytes
        if self._left < 0:
            raise TooLarge(f"it has more than {self._most:,} bytes of JSON, the limit")

    def put(self, value: Json, *, shared: bool) -> Json:
        """Take what a value needs; one that is `shared` with the scope is measured once, however often it occurs."""
        size = self._sizes.get(id(value)) if shared else None
        if size is None:
            # A text has at least a byte for each character.
            size = len(value) if isinstance(value, str) and len(value) > self._left else len(dump(value))
            self._budget.spend(0, _MEASURED * size)
            if shared:
                self._sizes[id(value)] = size
        self.take(size)
        return value


def evaluate(node: Node, scope: Mapping[str, Json], budget: Budget, room: Room | None) -> Json:
    """The node's value. Raises `ExpressionError`, and `Refused` once the budget is spent."""
    match node:
        case Array():
            if room is not None:
                room.take(max(2, 1 + len(node.items)))
            return [evaluate(item, scope, budget, room) for item in node.items]
        case Object():
            if room is not None:
                room.take(max(2, 1 + len(node.members)) + sum(1 + len(dump(key)) for key in node.members))
            return {key: evaluate(member, scope, budget, room) for key, member in node.members.items()}
        case Constant():
            return node.value if room is None else room.put(node.value, shared=True)
        case Expression():
            value = node.evaluate(scope, budget)
            return value if room is None else room.put(value, shared=node.plain)
        case Text():
            value = _join(node, scope, budget)
            return value if room is None else room.put(value, shared=False)


def _join(node: Text, scope: Mapping[str, Json], budget: Budget) -> str:
    texts: list[str] = []
    length = 0
    for part in node.parts:
        texts.append(part if isinstance(part, str) else as_text(part.evaluate(scope, budget), budget))
        length += len(texts[-1])
        if length > MAX_TEXT:
            raise ExpressionError(f"the text grows over {MAX_TEXT:,} characters")
    budget.spend(1, 2 * length)
    return "".join(texts)


def as_text(value: Json, budget: Budget) -> str:
    """A value inside other text: strings as they are, null as nothing, others as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    budget.write(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
