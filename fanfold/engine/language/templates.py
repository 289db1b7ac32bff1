"""${…} in a workflow document: templates over JMESPath, read once, evaluated often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fanfold.engine.errors import ValidationIssue
from fanfold.engine.language.budget import Budget, Refused
from fanfold.engine.language.expressions import Expression, ExpressionError, TooLarge, compile_expression, same_set
from fanfold.engine.language.template_nodes import Array, Constant, Node, Object, Room, Text, evaluate
from fanfold.engine.payload import Json

__all__ = [
    "MAX_DEPTH",
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

Slot = tuple[str, Expression]
"""An expression and the JSON pointer of the string it stands in."""


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
    _node: Node = field(repr=False, compare=False)

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
        room = None if max_bytes is None else Room(max_bytes, sizes, budget)
        try:
            return evaluate(self._node, scope, budget, room)
        except Refused as error:
            raise ExpressionError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was found in a JSON value: its problems, and the sound expressions even where there are problems."""

    problems: tuple[ValidationIssue, ...]
    slots: tuple[Slot, ...]
    single: bool
    _node: Node = field(repr=False)


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


def _compile(source: Json, pointer: str, depth: int, problems: list[ValidationIssue], slots: _Slots) -> Node:
    if depth > MAX_DEPTH:
        problems.append(ValidationIssue(pointer=pointer, detail=f"nested deeper than {MAX_DEPTH} levels"))
        return Constant(value=None)
    if isinstance(source, str):
        return _compile_text(source, pointer, problems, slots)
    if isinstance(source, list):
        items = tuple(
            _compile(item, f"{pointer}/{slot}", depth + 1, problems, slots) for slot, item in enumerate(source)
        )
        if all(isinstance(item, Constant) for item in items):
            return Constant(value=[item.value for item in items if isinstance(item, Constant)])
        return Array(items=items)
    if isinstance(source, dict):
        members = {
            key: _compile(value, f"{pointer}/{escape(key)}", depth + 1, problems, slots)
            for key, value in source.items()
        }
        if all(isinstance(member, Constant) for member in members.values()):
            return Constant(value={k: m.value for k, m in members.items() if isinstance(m, Constant)})
        return Object(members=members)
    return Constant(value=source)


def escape(key: str) -> str:
    """A key as a part of an RFC 6901 pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _compile_text(text: str, pointer: str, problems: list[ValidationIssue], slots: _Slots) -> Node:
    if "${" not in text:
        return Constant(value=text)
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
            return Constant(value="".join(part for part in parts if isinstance(part, str)))
        case _:
            return Text(parts=tuple(parts))


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
