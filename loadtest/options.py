"""What a scenario can be told: its keyword arguments are the options of its command.

A scenario says what each means by `Annotated[float, "…"]`; a mapping `QUICK` in its module has the values of the
short version.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Numbers(tuple[float, ...]):
    """Numbers of which a measurement is made one after the other."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Numbers:
        """`5,25,50`. Raises ValueError for what is no list of positive numbers."""
        found = cls(float(part) for part in text.split(","))
        if min(found) <= 0:
            raise ValueError(f"positive numbers, with commas between, not {text!r}")
        return found

    def __str__(self) -> str:
        return ",".join(f"{number:g}" for number in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its type, what it means, its value and that of the short version."""

    name: str
    kind: type[Any]
    meaning: str
    value: Any
    quick: Any


def options_of(scenario: Callable[..., Any]) -> tuple[Option, ...]:
    """A scenario's options, in its own order. Raises TypeError when its `QUICK` names one it does not have."""
    quick = quick_of(scenario)
    hints = get_type_hints(scenario, include_extras=True)
    found = []
    for name, parameter in inspect.signature(scenario).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        kind, meaning = get_args(hints[name])[:2] if get_origin(hints[name]) is Annotated else (hints[name], "")
        value = parameter.default
        found.append(Option(name=name, kind=kind, meaning=meaning, value=value, quick=quick.get(name, value)))
    if unknown := set(quick) - {option.name for option in found}:
        raise TypeError(f"{scenario.__module__}.QUICK names no option of the scenario: {sorted(unknown)}")
    return tuple(found)


def quick_of(scenario: Callable[..., Any]) -> Mapping[str, Any]:
    """The values of the short version, where they are others."""
    mapping: Mapping[str, Any] = getattr(sys.modules[scenario.__module__], "QUICK", {})
    return mapping


def chosen(scenario: Callable[..., Any], given: Mapping[str, Any], *, quick: bool) -> dict[str, Any]:
    """The value of every option: as given (not None), else the short version's, else the scenario's own."""
    values = {option.name: option.quick if quick else option.value for option in options_of(scenario)}
    return values | {name: value for name, value in given.items() if value is not None}
