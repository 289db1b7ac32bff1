"""The language of CloudWatch's metric math: an expression as text becomes a tree of what it is made of.

Its grammar is in the CloudWatch user guide, "Metric math syntax and functions". Functions are known to
`evaluate.py`; here any name before a parenthesis is one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


class FormulaError(ValueError):
    """An expression that can't be read or has no value; the message says what is wrong with which part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A literal."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The id of a metric or of another expression."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A quoted text, or a word of a function's own such as REPEAT."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function with its arguments."""

    function: str
    arguments: Sequence[Formula]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Several series in brackets."""

    parts: Sequence[Formula]


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """A unary minus."""

    of: Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator between two parts; AND and OR are spelled as words."""

    operator: str
    left: Formula
    right: Formula


Formula = Number | Name | Word | Call | Listing | Negative | Operation

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<quoted>"[^"]*"|'[^']*')
    | (?P<sign>==|!=|<=|>=|&&|\|\||[-+*/^<>()\[\],])
    )""",
    re.VERBOSE,
)
_LEVELS: Sequence[frozenset[str]] = (
    frozenset({"OR"}),
    frozenset({"AND"}),
    frozenset({"==", "!=", "<=", ">=", "<", ">"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/"}),
)
"""The operators, those that bind least first; all of them take the left side first."""

_SPELLINGS = {"&&": "AND", "||": "OR"}
DEEPEST = 50
"""Levels of nesting; an expression has at most 1,024 characters, and no person writes more than a few."""


def parse(text: str) -> Formula:
    """The tree of an expression. Raises `FormulaError` that shows where it can't be read."""
    reader = _Reader(text)
    tree = reader.operation(0)
    reader.expect("")
    return tree


def names_in(tree: Formula) -> frozenset[str]:
    """The ids that an expression names. METRICS() names none and may mean all."""
    match tree:
        case Name(id=id_):
            return frozenset({id_})
        case Call(arguments=parts) | Listing(parts=parts):
            return frozenset().union(*(names_in(part) for part in parts))
        case Negative(of=part):
            return names_in(part)
        case Operation(left=left, right=right):
            return names_in(left) | names_in(right)
        case Number() | Word():
            return frozenset()


class _Reader:
    """Takes an expression's tokens one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _token(self) -> str:
        return self._tokens[self._at][1]

    def _at_sign(self, sign: str) -> bool:
        return self._kind == "sign" and self._token == sign

    def _take(self) -> str:
        token = self._token
        self._at += 1
        return token

    def _wrong(self, wanted: str) -> FormulaError:
        found = f"{self._token!r}" if self._token else "the end"
        return FormulaError(f"{self._text!r}: {wanted} expected, found {found} at {self._tokens[self._at][2] + 1}")

    def expect(self, sign: str) -> None:
        """Take exactly this sign; the empty one is the end."""
        if self._token != sign or self._kind == "quoted":
            raise self._wrong(repr(sign) if sign else "the end")
        if sign:
            self._at += 1

    def operation(self, level: int) -> Formula:
        """An operation of this level or one that binds more."""
        if level == len(_LEVELS):
            return self._power()
        left = self.operation(level + 1)
        while self._kind in ("sign", "word") and _SPELLINGS.get(self._token, self._token) in _LEVELS[level]:
            sign = self._take()
            left = Operation(
                operator=_SPELLINGS.get(sign, sign),
                left=left,
                right=self.operation(level + 1),
            )
        return left

    def _power(self) -> Formula:
        base = self._unary()
        if self._at_sign("^"):
            self._at += 1
            return Operation(operator="^", left=base, right=self._power())
        return base

    def _unary(self) -> Formula:
        if self._at_sign("-"):
            self._at += 1
            # A minus is weaker than a power: -2^2 is -4.
            return Negative(of=self._power())
        return self._atom()

    def _atom(self) -> Formula:
        self._depth += 1
        if self._depth > DEEPEST:
            raise FormulaError(f"{self._text[:60]!r}…: nested more than {DEEPEST} deep")
        try:
            return self._read_atom()
        finally:
            self._depth -= 1

    def _read_atom(self) -> Formula:
        match self._kind:
            case "number":
                return Number(value=float(self._take()))
            case "quoted":
                return Word(text=self._take()[1:-1])
            case "word":
                word = self._take()
                if self._at_sign("("):
                    self._at += 1
                    return Call(function=word, arguments=self._parts(")"))
                return Name(id=word) if word[0].islower() else Word(text=word)
            case "sign" if self._token == "(":
                self._at += 1
                inner = self.operation(0)
                self.expect(")")
                return inner
            case "sign" if self._token == "[":
                self._at += 1
                return Listing(parts=self._parts("]"))
        raise self._wrong("a number, an id, a function or a bracket")

    def _parts(self, closing: str) -> Sequence[Formula]:
        if self._at_sign(closing):
            self._at += 1
            return ()
        parts = [self.operation(0)]
        while self._at_sign(","):
            self._at += 1
            parts.append(self.operation(0))
        self.expect(closing)
        return parts


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    at = 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            begin = at + len(text[at:]) - len(text[at:].lstrip())
            raise FormulaError(f"{text!r}: {text[begin]!r} at {begin + 1} means nothing in metric math")
        kind = token.lastgroup or ""
        found.append((kind, token[kind], token.start(kind)))
        at = token.end()
    return [*found, ("end", "", len(text))]
