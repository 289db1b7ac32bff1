"""DynamoDB's expressions, as far as the adapters speak them: conditions, key conditions and updates of one item.

Compiled once for each text. Values compare as DynamoDB compares them: numbers by value, texts and binaries by bytes,
and values of two types never.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

Item = Mapping[str, Any]
Values = Mapping[str, Any]
Condition = Callable[[Item, Values], bool]
Update = Callable[[Item, Values], dict[str, Any]]

_TOKEN: Final = re.compile(r"\s*(<=|>=|<>|[()=<>,+-]|[:#]?[A-Za-z_][A-Za-z0-9_]*)")
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class NotSpoken(ValueError):
    """An expression of a form that no adapter uses: the adapter that uses it has to be taught here."""


@lru_cache(maxsize=512)
def condition(text: str) -> Condition:
    """Whether an item meets a condition expression; an absent item is an empty mapping. Raises `NotSpoken`."""
    tokens = _Tokens(text)
    made = _either(tokens)
    tokens.end()
    return made


@lru_cache(maxsize=512)
def update(text: str) -> Update:
    """The item an update expression makes of one (SET, ADD, REMOVE). Raises `NotSpoken`."""
    tokens = _Tokens(text)
    actions: list[tuple[str, str, Any]] = []
    while not tokens.done:
        verb = tokens.take().upper()
        while True:
            name = tokens.take()
            match verb:
                case "SET":
                    tokens.expect("=")
                    actions.append((verb, name, _operand(tokens)))
                case "ADD":
                    actions.append((verb, name, _operand(tokens)))
                case "REMOVE":
                    actions.append((verb, name, None))
                case _:
                    raise NotSpoken(text)
            if not tokens.accept(","):
                break

    def apply(item: Item, values: Values) -> dict[str, Any]:
        changed = dict(item)
        for verb, name, operand in actions:
            if verb == "REMOVE":
                changed.pop(name, None)
            elif verb == "SET":
                changed[name] = operand(item, values)  # what stands on the right is the item as it was
            else:
                total = Decimal(item.get(name, {"N": "0"})["N"]) + Decimal(operand(item, values)["N"])
                changed[name] = {"N": str(total)}
        return changed

    return apply


class _Tokens:
    """The words of an expression, taken from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise NotSpoken(text)
            self._words.append(found[1])
            at = found.end()
        self._words.reverse()

    @property
    def done(self) -> bool:
        return not self._words

    def take(self) -> str:
        if not self._words:
            raise NotSpoken(self._text)
        return self._words.pop()

    def accept(self, word: str) -> bool:
        if self._words and self._words[-1].upper() == word:
            self._words.pop()
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise NotSpoken(self._text)

    def end(self) -> None:
        if self._words:
            raise NotSpoken(self._text)


def _either(tokens: _Tokens) -> Condition:
    parts = [_all(tokens)]
    while tokens.accept("OR"):
        parts.append(_all(tokens))
    return parts[0] if len(parts) == 1 else lambda item, values: any(part(item, values) for part in parts)


def _all(tokens: _Tokens) -> Condition:
    parts = [_one(tokens)]
    while tokens.accept("AND"):
        parts.append(_one(tokens))
    return parts[0] if len(parts) == 1 else lambda item, values: all(part(item, values) for part in parts)


def _one(tokens: _Tokens) -> Condition:
    if tokens.accept("("):
        inner = _either(tokens)
        tokens.expect(")")
        return inner
    for function, wanted in (("ATTRIBUTE_EXISTS", True), ("ATTRIBUTE_NOT_EXISTS", False)):
        if tokens.accept(function):
            tokens.expect("(")
            name = tokens.take()
            tokens.expect(")")
            return lambda item, values, name=name, wanted=wanted: (name in item) is wanted  # type: ignore[misc]
    left = _operand(tokens)
    word = tokens.take()
    if word not in _COMPARE:
        raise NotSpoken(f"a comparison {word!r}")
    compare, right = _COMPARE[word], _operand(tokens)

    def holds(item: Item, values: Values) -> bool:
        a, b = left(item, values), right(item, values)
        if a is None or b is None:
            return word == "<>" and a is not b
        ((kind, first),) = a.items()
        if kind not in b:
            return word == "<>"
        second = b[kind]
        if kind == "N":
            first, second = Decimal(first), Decimal(second)
        elif kind == "S":
            first, second = first.encode(), second.encode()
        return compare(first, second)

    return holds


def _operand(tokens: _Tokens) -> Callable[[Item, Values], Any]:
    if tokens.accept("IF_NOT_EXISTS"):
        tokens.expect("(")
        name = tokens.take()
        tokens.expect(",")
        other = _operand(tokens)
        tokens.expect(")")
        return lambda item, values: item[name] if name in item else other(item, values)
    word = tokens.take()
    if word.startswith(":"):
        return lambda item, values: values[word]
    return lambda item, values: item.get(word)
