"""Expressions that have a meaning, and never the one that was meant: told when a document is registered, and only then.

What is registered already is run as it always was.
"""

from __future__ import annotations

import re

from jmespath.lexer import Lexer
from jmespath.parser import Parser

from fanfold.engine.language.expressions import Expression, hyphens_quoted
from fanfold.engine.language.references import Tree, walk

_TRUTHS = frozenset({"true", "false"})
_NAMED = re.compile(r"\b(?:null|true|false)\b")
_COMPARATORS = frozenset({"eq", "ne", "lt", "lte", "gt", "gte"})
_OF_A_PATH = frozenset({"dot", "lbracket", "filter", "flatten", "star"})


def traps(expression: Expression) -> list[str]:
    """What of an expression can't be meant as it stands, in sentences; empty for nearly every one."""
    if not _NAMED.search(expression.text):
        return []
    text = hyphens_quoted(expression.text)
    return [*_bare(text), *_nulls_kept(Parser().parse(text).parsed)]


def _bare(text: str) -> list[str]:
    """`x == true` compares with a field of the name `true`: who means that writes it in double quotes.

    `null` without backticks is a field as well. No value has one, so that it is null: what was meant.
    """
    tokens = list(Lexer().tokenize(text))
    found = []
    for before, token, after in zip([{"type": "eof"}, *tokens], tokens, tokens[1:], strict=False):
        name = token["value"]
        if token["type"] != "unquoted_identifier" or name not in _TRUTHS or before["type"] == "dot":
            continue
        if after["type"] not in _OF_A_PATH and _COMPARATORS & {before["type"], after["type"]}:
            found.append(f'`{name}` is a field here: for the literal write it in backticks, for a field as "{name}"')
    return list(dict.fromkeys(found))


def _nulls_kept(tree: Tree) -> list[str]:
    """A filter drops what is null from its result, also where its condition asks for it."""
    for node in walk(tree):
        if node["type"] != "filter_projection":
            continue
        _, each, condition = node["children"]
        if _is_null_asked_for(condition) and all(part["type"] != "function_expression" for part in walk(each)):
            return [
                "a filter's result has no null in it, so that `[?@ == null]` gives an empty list; "
                "to count them write length(LIST[?@ == `null`].type(@))"
            ]
    return []


def _is_null_asked_for(condition: Tree) -> bool:
    if condition["type"] != "comparator" or condition["value"] != "eq":
        return False
    sides = condition["children"]
    nulls = [(side["type"] == "literal" and side["value"] is None) or _is_bare_null(side) for side in sides]
    return any(nulls) and any(side["type"] == "current" for side in sides)


def _is_bare_null(side: Tree) -> bool:
    return bool(side["type"] == "field" and side["value"] == "null")
