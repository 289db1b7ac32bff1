"""Resets the module-level variables of task modules, because a process loses its memory when it dies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, list, dict, set, bytearray)
"""Types of values that a copy can restore."""


class ModuleState:
    """The current variables of these functions' modules.

    What is put back: numbers, texts, and lists, dicts and sets of such at the top of a module, what was
    not there yet, and what `functools.cache` remembers. Lists, dicts and sets keep their identity, so that
    others who imported them see the same. Objects of other types (clients, say) are left alone.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        spaces = {id(space): space for function in functions if (space := getattr(function, "__globals__", None))}
        self._spaces: list[tuple[dict[str, Any], frozenset[str], Mapping[str, Any]]] = [
            (space, frozenset(space), copy.deepcopy({name: value for name, value in space.items() if _plain(value)}))
            for space in spaces.values()
        ]

    def restore(self) -> None:
        """Restore the variables."""
        for space, names, kept in self._spaces:
            for name in [name for name in space if name not in names]:
                del space[name]
            for name, value in kept.items():
                _put_back(space, name, copy.deepcopy(value))
            for value in list(space.values()):
                forget = getattr(value, "cache_clear", None)
                if callable(forget) and hasattr(value, "__wrapped__"):
                    forget()


def _plain(value: object) -> bool:
    """Whether the value contains only plain types, so that a copy restores it."""
    match value:
        case dict():
            return type(value) is dict and all(_plain(key) and _plain(item) for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            return type(value) in PLAIN and all(_plain(item) for item in value)
        case _:
            return type(value) in PLAIN


def _put_back(space: dict[str, Any], name: str, value: Any) -> None:
    existing = space.get(name)
    if existing is value or name.startswith("__"):
        return
    match existing:
        case list() | bytearray() if type(existing) is type(value):
            existing[:] = value
        case dict() | set() if type(existing) is type(value):
            existing.clear()
            existing.update(value)
        case _:
            space[name] = value
