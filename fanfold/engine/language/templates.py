"""${…} in a workflow document: templates over JMESPath, read once, evaluated often."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fanfold.engine.errors import ValidationIssue
from fanfold.engine.language.budget import Budget, Refused
from fanfold.engine.language.expressions import Expression, ExpressionError, TooLarge, compile_expression, same_set
from fanfold.engine.payload import Json, dump

__all__ = [
    "MAX_DEPTH",
    "MAX_TEXT",
    "ExpressionError",
    "Reading",
    "Slot",
    "Template",
    "TooLarge",
    "compile_template",
    "escape",
    "read",
]

MAX_DEPTH = 32
"""Deepest nesting of a template's JSON. Evaluation recurses, so that it has to have an end."""
MAX_TEXT = 5_000_000
"""Longest text, in characters, that putting values into a string may give: the biggest payload there is."""
_MEASURED = 4
"""Writing a value only to see how long it is takes so many times as long as going through a text of that length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    parts: tuple[str | Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    items: tuple[_Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    members: Mapping[str, _Node]


Slot = tuple[str, Expression]
"""An expression and the JSON pointer of the string it stands in."""
_Node = _Constant | Expression | _Text | _Array | _Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A JSON tree in whose strings ${…} stands for a value.

    `roots` are the names at the root of the scope that it reads (`input`, `steps`, `run`, `item`,
    `index`), `steps` every step it mentions, `outputs` those of them whose output it may read.
    `single` says that it is one string with one ${…} and nothing else, `expressions` how many there are,
    `nodes` of how many nodes together. Two templates are equal when their `source` is.
    """

    source: Json
    roots: frozenset[str] = field(compare=False)
    steps: frozenset[str] = field(compare=False)
    outputs: frozenset[str] = field(compare=False)
    single: bool = field(compare=False)
    expressions: int = field(compare=False)
    nodes: int = field(compare=False)
    _node: _Node = field(repr=False, compare=False)

    def evaluate(
        self,
        scope: Mapping[str, Json],
        budget: Budget | None = None,
        *,
        max_bytes: int | None = None,
        sizes: Mapping[int, int] = MappingProxyType({}),
    ) -> Json:
        """The tree with every ${…} replaced; what the scope has not is null. Raises `ExpressionError`.

        What is evaluated within one budget shares it. With `max_bytes` the result has at most so many bytes of JSON,
        counted part by part while it is made; `TooLarge` otherwise. `sizes` has those of values in the scope that are
        known, by their identity. The result shares parts with the scope and
        the template: treat all three as immutable.
        """
        budget = Budget() if budget is None else budget
        room = None if max_bytes is None else _Room(max_bytes, sizes, budget)
        try:
            return _evaluate(self._node, scope, budget, room)
        except Refused as error:
            raise ExpressionError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was found in a JSON value: its problems, and the sound expressions even where there are problems."""

    problems: tuple[ValidationIssue, ...]
    slots: tuple[Slot, ...]
    single: bool
    _node: _Node = field(repr=False)


class _Slots(list[Slot]):
    """The expressions found so far, and how many nodes more they may have together (None: any number)."""

    def __init__(self, room: int | None) -> None:
        super().__init__()
        self.room = room


def read(source: Json, pointer: str, *, max_nodes: int | None = None) -> Reading:
    """Look through a JSON value that stands at `pointer`. Keys are taken as they are; only values are looked at.

    Once its expressions have more than `max_nodes` together, the rest of them is left.
    """
    problems: list[ValidationIssue] = []
    slots = _Slots(max_nodes)
    node = _compile(source, pointer, 0, problems, slots)
    return Reading(problems=tuple(problems), slots=tuple(slots), single=isinstance(node, Expression), _node=node)


def compile_template(source: Json, pointer: str) -> tuple[Template | None, list[ValidationIssue]]:
    """The template a JSON value describes, or None and every problem in it; `pointer` is where it stands."""
    reading = read(source, pointer)
    if reading.problems:
        return None, list(reading.problems)
    template = Template(
        source=source,
        roots=same_set(frozenset().union(*(e.roots for _, e in reading.slots))),
        steps=same_set(frozenset().union(*(e.steps for _, e in reading.slots))),
        outputs=same_set(frozenset().union(*(e.outputs for _, e in reading.slots))),
        single=reading.single,
        expressions=len(reading.slots),
        nodes=sum(e.nodes for _, e in reading.slots),
        _node=reading._node,
    )
    return template, []


def _compile(source: Json, pointer: str, depth: int, problems: list[ValidationIssue], slots: _Slots) -> _Node:
    if depth > MAX_DEPTH:
        problems.append(ValidationIssue(pointer=pointer, detail=f"nested deeper than {MAX_DEPTH} levels"))
        return _Constant(value=None)
    if isinstance(source, str):
        return _compile_text(source, pointer, problems, slots)
    if isinstance(source, list):
        items = tuple(
            _compile(item, f"{pointer}/{slot}", depth + 1, problems, slots) for slot, item in enumerate(source)
        )
        if all(isinstance(item, _Constant) for item in items):
            return _Constant(value=[item.value for item in items if isinstance(item, _Constant)])
        return _Array(items=items)
    if isinstance(source, dict):
        members = {
            key: _compile(value, f"{pointer}/{escape(key)}", depth + 1, problems, slots)
            for key, value in source.items()
        }
        if all(isinstance(member, _Constant) for member in members.values()):
            return _Constant(value={k: m.value for k, m in members.items() if isinstance(m, _Constant)})
        return _Object(members=members)
    return _Constant(value=source)


def escape(key: str) -> str:
    """A key as a part of an RFC 6901 pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _compile_text(text: str, pointer: str, problems: list[ValidationIssue], slots: _Slots) -> _Node:
    if "${" not in text:
        return _Constant(value=text)
    parts: list[str | Expression] = []
    for is_expression, piece in _split(text):
        if not is_expression:
            parts.append(piece)
            continue
        if not piece.endswith("}"):
            problems.append(
                ValidationIssue(pointer=pointer, detail="`${` is not closed by `}` (for a literal one write `$${`)")
            )
            continue
        if slots.room is not None and slots.room < 0:
            break
        expression, details = compile_expression(piece[2:-1])
        problems.extend(ValidationIssue(pointer=pointer, detail=detail) for detail in details)
        if expression is not None:
            parts.append(expression)
            slots.append((pointer, expression))
            if slots.room is not None:
                slots.room -= expression.nodes
    match parts:
        case [Expression() as expression]:
            return expression
        case _ if all(isinstance(part, str) for part in parts):
            return _Constant(value="".join(part for part in parts if isinstance(part, str)))
        case _:
            return _Text(parts=tuple(parts))


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """Text between, and `${…}` with its braces; one that is never closed comes without its end."""
    plain = ""
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found > at and text[found - 1] == "$":
            plain += text[at : found - 1] + "${"
            at = found + 2
            continue
        plain += text[at:found]
        if plain:
            yield False, plain
            plain = ""
        at = _end(text, found + 2)
        if at < 0:
            # Without its last character, which may be a brace inside quotes.
            yield True, "${"
            return
        yield True, text[found:at]
    plain += text[at:]
    if plain:
        yield False, plain


def _end(text: str, at: int) -> int:
    """The place after the `}` that closes an expression begun before `at`; -1 when there is none."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "'\"`":
            at += 1
            while at < len(text) and text[at] != char:
                at += 2 if text[at] == "\\" else 1
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                return at + 1
            depth -= 1
        at += 1
    return -1


class _Room:
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


def _evaluate(node: _Node, scope: Mapping[str, Json], budget: Budget, room: _Room | None) -> Json:
    match node:
        case _Array():
            if room is not None:
                room.take(max(2, 1 + len(node.items)))
            return [_evaluate(item, scope, budget, room) for item in node.items]
        case _Object():
            if room is not None:
                room.take(max(2, 1 + len(node.members)) + sum(1 + len(dump(key)) for key in node.members))
            return {key: _evaluate(member, scope, budget, room) for key, member in node.members.items()}
        case _Constant():
            return node.value if room is None else room.put(node.value, shared=True)
        case Expression():
            value = node.evaluate(scope, budget)
            return value if room is None else room.put(value, shared=node.plain)
        case _Text():
            value = _join(node, scope, budget)
            return value if room is None else room.put(value, shared=False)


def _join(node: _Text, scope: Mapping[str, Json], budget: Budget) -> str:
    texts: list[str] = []
    length = 0
    for part in node.parts:
        texts.append(part if isinstance(part, str) else _as_text(part.evaluate(scope, budget), budget))
        length += len(texts[-1])
        if length > MAX_TEXT:
            raise ExpressionError(f"the text grows over {MAX_TEXT:,} characters")
    budget.spend(1, 2 * length)
    return "".join(texts)


def _as_text(value: Json, budget: Budget) -> str:
    """A value inside other text: strings as they are, null as nothing, others as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    budget.write(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
