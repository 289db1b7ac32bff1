"""The functions of expressions: JMESPath's, held to what JSON can say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from jmespath.exceptions import JMESPathTypeError
from jmespath.functions import Functions as Library
from jmespath.functions import signature

from functions.engine.values import Json

LARGEST_INTEGER = 10**4_300
"""The first integer that Python's JSON neither reads nor writes, by its default limit of 4,300 digits."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TYPES = {
    "array-number": "an array of numbers",
    "array-string": "an array of strings",
    "array": "an array",
    "object": "an object",
    "expref": "an expression after `&`",
    "null": "null",
}


class Functions(Library):  # type: ignore[misc]  # jmespath ships no types
    """The library's functions, but for those that differ from JMESPath or would give what is no JSON."""

    @signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_number(self, arg: Json) -> Json:
        """A number as it is, a text as the number that JSON writes so; null for anything else."""
        if isinstance(arg, (int, float)) and not isinstance(arg, bool):
            return arg
        found = _NUMBER.fullmatch(arg) if isinstance(arg, str) else None
        if found is None:
            return None
        return int(arg) if found[1] is None and found[2] is None else float(arg)

    @signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_string(self, arg: Json) -> str:
        """A text as it is, anything else as compact JSON. Raises TypeError or ValueError for what is no JSON."""
        return arg if isinstance(arg, str) else json.dumps(arg, separators=(",", ":"), allow_nan=False)


def wrong_argument(error: JMESPathTypeError) -> str:
    """What is wrong with a function's argument, in a sentence without the value, which may be of any size."""
    wanted = [_TYPES.get(kind, f"a {kind}") for kind in error.expected_types]
    return f"{error.function_name}() takes {_either(wanted)}, and was given {_type_of(error.current_value)}"


def _either(kinds: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))


def _type_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "an expression"
