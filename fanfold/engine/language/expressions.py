"""One JMESPath expression over a run's scope: read once, known for what it reads, evaluated within a budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from jmespath.exceptions import JMESPathError, JMESPathTypeError, LexerError
from jmespath.parser import Parser

from fanfold.engine.errors import FanfoldError
from fanfold.engine.language.budget import Budget, Refused
from fanfold.engine.language.evaluator import build
from fanfold.engine.language.functions import Evaluate, Functions, wrong_argument
from fanfold.engine.language.references import Tree, depth_of, references, walk
from fanfold.engine.payload import Json, parse

MAX_LENGTH = 4_096
"""Longest expression, in characters."""
MAX_NESTING = 60
"""Deepest syntax tree; the interpreter recurses a few frames for each level."""

# A field after `steps.` with a hyphen. JMESPath has no minus, so that outside quotes these characters
# mean nothing in it: reading them as a quoted name changes no expression that had a meaning.
_HYPHENATED = re.compile(r"""(?<![\w.-])(steps\s*\.\s*)([a-z][a-z0-9_]*-[a-z0-9_-]*)""")
_QUOTED = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`)""", re.DOTALL)
_PLAIN = frozenset({"field", "subexpression", "index_expression", "index"})


class ExpressionError(FanfoldError):
    """An expression could not be evaluated over this run's values; the message is for people.

    `failure_type` is the type of the failure it means.
    """

    failure_type = "expression_error"


class InputUnavailable(ExpressionError):
    """What an expression would be given is gone, or is not what was stored."""

    failure_type = "input_unavailable"


class TooLarge(ExpressionError):
    """What an expression is a part of would have more bytes of JSON than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression: `roots` it reads, `steps` it mentions, `outputs` the steps whose output it may read.

    `plain` says that it only picks a part of a value, `nodes` how many its syntax tree has.
    """

    text: str
    roots: frozenset[str]
    steps: frozenset[str]
    outputs: frozenset[str]
    plain: bool
    nodes: int
    _evaluate: Evaluate = field(repr=False, compare=False)

    def evaluate(self, scope: Mapping[str, Json], budget: Budget | None = None) -> Json:
        """The value, plain JSON; null for what the scope has not. Raises `ExpressionError`.

        What is evaluated together shares a budget: a thousand costly expressions are as bad as one.
        """
        budget = Budget() if budget is None else budget
        try:
            value = self._evaluate(scope if isinstance(scope, dict) else dict(scope), budget)
            # A path picks a part of the scope, which is JSON already and may be big.
            if not self.plain:
                budget.weigh([value], strict=True)
        except Refused as error:
            raise ExpressionError(f"{self._shown}: {error}") from error
        except RecursionError as error:
            raise ExpressionError(f"{self._shown}: a value is nested too deeply") from error
        except JMESPathTypeError as error:
            raise ExpressionError(f"{self._shown}: {wrong_argument(error)}") from error
        except MemoryError:
            # Of this process, and not of the expression: another may have room for it.
            raise
        except Exception as error:
            # The library checks its functions' arguments, but not what Python can't compare or compute.
            raise ExpressionError(f"{self._shown}: {_first_line(error)}") from error
        return value

    @property
    def _shown(self) -> str:
        return f"${{{_shortened(self.text)}}}"


@lru_cache(maxsize=1_024)
def compile_expression(text: str) -> tuple[Expression | None, tuple[str, ...]]:
    """The expression between `${` and `}`, or None and what is wrong with it, in sentences."""
    shown = _shortened(text)
    if len(text) > MAX_LENGTH:
        return None, (f"`{shown}` is longer than {MAX_LENGTH:,} characters",)
    if not text.strip():
        return None, ("`${}` has no expression in it",)
    pieces = _QUOTED.split(text)
    bad = [piece for piece in pieces[1::2] if piece.startswith("`") and not _is_json(piece)]
    if bad:
        return None, tuple(f"`{shown}`: the literal {piece} is not JSON (a string needs quotes)" for piece in bad)
    try:
        tree: Tree = Parser().parse(hyphens_quoted(text)).parsed
    except RecursionError:
        return None, (f"`{shown}` is nested too deeply",)
    except (JMESPathError, ValueError, LookupError, TypeError, AttributeError) as error:
        # Some wrong texts make the library's parser fail with Python's own errors.
        return None, (f"`{shown}` is no JMESPath expression{_reason(error)}",)
    if depth_of(tree) > MAX_NESTING:
        return None, (f"`{shown}` is nested too deeply",)
    found = references(tree)
    details = [*found.problems, *_wrong_calls(tree)]
    if details:
        return None, tuple(f"`{shown}`: {detail}" for detail in dict.fromkeys(details))
    kinds = [node["type"] for node in walk(tree)]
    expression = Expression(
        text=text,
        roots=same_set(frozenset(found.roots)),
        steps=same_set(frozenset(found.steps)),
        outputs=same_set(frozenset(found.outputs)),
        plain=all(kind in _PLAIN for kind in kinds),
        nodes=len(kinds),
        _evaluate=build(tree),
    )
    return expression, ()


def hyphens_quoted(text: str) -> str:
    """An expression as the library reads it: a step's name with a hyphen is a quoted one."""
    pieces = _QUOTED.split(text)
    pieces[::2] = [_HYPHENATED.sub(r'\1"\2"', piece) for piece in pieces[::2]]
    return "".join(pieces)


@lru_cache(maxsize=1_024)
def same_set(names: frozenset[str]) -> frozenset[str]:
    """One object for equal sets: nearly every expression reads what others read."""
    return names


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _is_json(literal: str) -> bool:
    try:
        parse(literal[1:-1].replace("\\`", "`"))
    except ValueError:
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, LexerError):
        return f": {error.message}"
    return f": {_first_line(error)}" if isinstance(error, JMESPathError) else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


def _wrong_calls(tree: Tree) -> list[str]:
    """What would fail in every run is told at registration: unknown functions, wrong numbers of arguments."""
    details = []
    for node in walk(tree):
        if node["type"] != "function_expression":
            continue
        name, given = node["value"], len(node["children"])
        spec = Functions.FUNCTION_TABLE.get(name)
        if spec is None:
            details.append(f"there is no function {name}()")
            continue
        wanted = len(spec["signature"])
        variadic = wanted > 0 and spec["signature"][-1].get("variadic", False)
        if given < wanted or (given > wanted and not variadic):
            details.append(f"{name}() takes {'at least ' if variadic else ''}{wanted} argument(s), not {given}")
    return details
