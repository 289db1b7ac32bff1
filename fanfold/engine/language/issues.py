"""The problems of one document as they are found, and the checks that every part of it needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fanfold.engine.errors import ValidationIssue
from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.templates import escape
from fanfold.engine.payload import Json

MAX_PROBLEMS = 1_000
MAX_CHARACTERS = 500_000
"""After so many problems, or so much text, the rest is only counted: the answer has to be small enough to send."""
_MAX_HINTS = 100
"""Comparing names is slow: a document full of wrong ones gets "did you mean" for the first of them."""


class IssueCollector:
    """A growing list of problems."""

    def __init__(self) -> None:
        self._problems: list[ValidationIssue] = []
        self._characters = 0
        self._more = 0

    def __len__(self) -> int:
        """How many there are so far."""
        return len(self._problems) + self._more

    def result(self) -> tuple[ValidationIssue, ...]:
        """All of them, in the order they were found."""
        if self._more:
            return (*self._problems, ValidationIssue(pointer="", detail=f"and {self._more:,} more problems"))
        return tuple(self._problems)

    def near(self, name: str, known: Collection[str], *, n: int) -> list[str]:
        """Up to `n` known names that look like this one."""
        if len(self) >= _MAX_HINTS or len(name) > 100:
            return []
        import difflib  # who checks no documents does without

        return difflib.get_close_matches(name, sorted(known), n=n)

    def duration(self, source: Json, pointer: str) -> float | None:
        """Seconds of a duration, or None and a problem."""
        if not isinstance(source, str):
            self.add(pointer, f"must be a duration such as 30s (a text with a unit), not {kind_of(source)}")
            return None
        try:
            return parse_duration(source)
        except ValueError as error:
            self.add(pointer, str(error))
            return None

    def one_of(self, source: dict[str, Json], key: str, choices: tuple[str, ...], pointer: str) -> None:
        """A problem unless the key is absent or has one of these values."""
        if key in source and source[key] not in choices:
            self.add(f"{pointer}/{key}", f"must be one of {', '.join(choices)}")

    def keys(self, source: dict[str, Json], known: tuple[str, ...], pointer: str) -> None:
        """A problem for each key that is not known."""
        for key in source:
            if key not in known:
                close = self.near(key, known, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
                self.add(f"{pointer}/{escape(key)}", f"unknown key; {hint}")

    def add(self, pointer: str, detail: str) -> None:
        """One more problem."""
        self._characters += len(pointer) + len(detail)
        if len(self._problems) < MAX_PROBLEMS and self._characters < MAX_CHARACTERS:
            self._problems.append(ValidationIssue(pointer=pointer, detail=detail))
        else:
            self._more += 1


def kind_of(value: Any) -> str:
    """What a JSON value is, for a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def shortened(name: str) -> str:
    """A name as it is, or as much of it as a sentence bears."""
    return name if len(name) <= 80 else name[:77] + "..."
