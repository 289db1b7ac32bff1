"""YAML text → the JSON it stands for: the one user of PyYAML, which the API imports when a document comes as YAML."""

from __future__ import annotations

import math
from typing import Any

import yaml

from functions.engine.errors import InvalidDocument, Problem
from functions.engine.values import Json
from functions.runtime.api.problems import malformed
from functions.runtime.api.requests import MAX_DEPTH, pointer

MAX_NODES = 500_000
"""How many values a document may have with its aliases written out: a few lines of YAML can stand for billions."""

# libyaml's parser where the wheel has it: ten times faster, the same language.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeys(_Loader):  # type: ignore[misc]  # the base is one of two classes, chosen at import
    """Safe YAML in which a key that occurs twice in one mapping is an error, as it is in our JSON."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """One mapping; raises ConstructorError for a key that came before."""
        # Keys that a merge (`<<`) brings in may be overridden; those written here may not.
        written = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        seen: set[tuple[str, str]] = set()
        for key in written:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value[:100]!r} occurs twice in one mapping", key.start_mark
                    )
                seen.add((key.tag, key.value))
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result


def from_yaml(body: bytes) -> Json:
    """What the text says. Refused with 400 where it can't be read, with 422 where it says what JSON can't."""
    try:
        value = yaml.load(body.decode("utf-8"), Loader=_UniqueKeys)  # a SafeLoader underneath
    except UnicodeDecodeError as error:
        raise malformed("the body is not UTF-8", slug="malformed-yaml") from error
    except yaml.YAMLError as error:
        raise malformed(" ".join(str(error).split()), slug="malformed-yaml") from error
    except RecursionError as error:
        raise malformed("the YAML is nested too deeply", slug="malformed-yaml") from error
    except (ValueError, TypeError) as error:
        # What PyYAML's constructors let through: 2026-13-45 as a date, a list as a mapping's key.
        raise malformed(f"a value can't be read: {error}", slug="malformed-yaml") from error
    return _as_json(value)


def _as_json(root: object) -> Json:
    """The value with its aliases written out; every part that is no JSON becomes one problem."""
    problems: list[Problem] = []
    nodes = 0

    def visit(value: object, path: tuple[int | str, ...]) -> Json:
        nonlocal nodes
        nodes += 1
        if nodes > MAX_NODES:
            raise malformed(f"the document has more than {MAX_NODES:,} values", slug="malformed-yaml")
        if len(path) > MAX_DEPTH:
            raise malformed(f"the document is nested deeper than {MAX_DEPTH} levels", slug="malformed-yaml")
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                if not math.isfinite(value):
                    raise malformed(f"{pointer(path)}: {value} is not JSON", slug="malformed-yaml")
                return value
            case list():
                return [visit(item, (*path, index)) for index, item in enumerate(value)]
            case dict():
                result: dict[str, Json] = {}
                for key, item in value.items():
                    if isinstance(key, str):
                        result[key] = visit(item, (*path, key))
                    else:
                        problems.append(
                            Problem(pointer=pointer(path), detail=f"the key {key!r} must be a string: put it in quotes")
                        )
                return result
            case _:
                kind = type(value).__name__
                problems.append(Problem(pointer=pointer(path), detail=f"a YAML {kind} is not JSON: put it in quotes"))
                return None

    result = visit(root, ())
    if problems:
        raise InvalidDocument(tuple(problems))
    return result
