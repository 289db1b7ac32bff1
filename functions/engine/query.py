"""One JMESPath expression over a run's scope: read once, known for what it reads, evaluated within bounds.

The language is a stranger's way into a worker that other tenants share, so that an evaluation has
a budget: `[@, @] | [@, @] | …` doubles its value at each step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from jmespath.exceptions import JMESPathError, JMESPathTypeError, LexerError
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from functions.engine.errors import FanfoldError
from functions.engine.functions import LARGEST_INTEGER, Functions, wrong_argument
from functions.engine.references import Tree, depth_of, references, walk
from functions.engine.values import Json, parse

MAX_LENGTH = 4_096
"""Longest expression, in characters."""
MAX_NESTING = 60
"""Deepest syntax tree; the interpreter recurses a few frames for each level."""
MAX_VALUE_NESTING = 200
"""Deepest value an expression may make or compare; Python's JSON encoder and comparison recurse."""
BUDGET = 1_000_000
"""Most work of one evaluation, of a whole template where there is one: nodes visited and parts of values made or
compared (up to a second or two)."""

# A field after `steps.` with a hyphen. JMESPath has no minus, so that outside quotes these characters
# mean nothing in it: reading them as a quoted name changes no expression that had a meaning.
_HYPHENATED = re.compile(r"""(?<![\w.-])(steps\s*\.\s*)([a-z][a-z0-9_]*-[a-z0-9_-]*)""")
_QUOTED = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`)""", re.DOTALL)
_PLAIN = frozenset({"field", "subexpression", "index_expression", "index"})
_FUNCTIONS = Functions()


class ExpressionError(FanfoldError):
    """An expression could not be evaluated over this run's values; the message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression: `roots` it reads, `steps` it mentions, `outputs` the steps whose output it may read."""

    text: str
    roots: frozenset[str]
    steps: frozenset[str]
    outputs: frozenset[str]
    tree: Tree
    plain: bool

    def evaluate(self, scope: Mapping[str, Json], budget: Budget | None = None) -> Json:
        """The value, plain JSON; null for what the scope has not. Raises `ExpressionError`.

        What is evaluated together shares a budget: a thousand costly expressions are as bad as one.
        """
        interpreter = _Interpreter(Budget() if budget is None else budget)
        try:
            value = interpreter.visit(self.tree, scope)
            # A path picks a part of the scope, which is JSON already and may be big.
            if not self.plain:
                interpreter.check(value)
        except _Refused as error:
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
    pieces[::2] = [_HYPHENATED.sub(r'\1"\2"', piece) for piece in pieces[::2]]
    try:
        tree: Tree = Parser().parse("".join(pieces)).parsed
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
    expression = Expression(
        text=text,
        roots=frozenset(found.roots),
        steps=frozenset(found.steps),
        outputs=frozenset(found.outputs),
        tree=tree,
        plain=all(node["type"] in _PLAIN for node in walk(tree)),
    )
    return expression, ()


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


class Budget:
    """Work that may still be done; spent for good."""

    def __init__(self) -> None:
        self._left = BUDGET

    def spend(self, work: int) -> None:
        """Raises once more is asked than there was."""
        self._left -= work
        if self._left < 0:
            raise _Refused("the expression makes too much of its values")


class _Refused(Exception):
    """The evaluation was stopped, or its result is not JSON."""


class _Interpreter(TreeInterpreter):  # type: ignore[misc]  # jmespath ships no types
    """The library's interpreter, with a budget."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(Options(custom_functions=_FUNCTIONS))
        self._spend = budget.spend

    def visit(self, node: Tree, *args: Json, **kwargs: Json) -> Json:
        """Evaluate one node; each costs one."""
        self._spend(1)
        return super().visit(node, *args, **kwargs)

    def visit_flatten(self, node: Tree, value: Json) -> Json:
        """Flattening makes as much as all the parts hold; paid before it is made."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        self._spend(sum(len(item) for item in base if isinstance(item, list)))
        return super().visit_flatten({"children": [{"type": "literal", "value": base, "children": []}]}, value)

    def visit_comparator(self, node: Tree, value: Json) -> Json:
        """Comparing looks at all parts of both sides."""
        sides = [self.visit(child, value) for child in node["children"]]
        if all(isinstance(side, (list, dict)) for side in sides):
            self._weigh(sides)
        return super().visit_comparator(
            {**node, "children": [{"type": "literal", "value": side, "children": []} for side in sides]}, value
        )

    def visit_function_expression(self, node: Tree, value: Json) -> Json:
        """Calling costs the size of the arguments where the function looks at all of it."""
        arguments = [self.visit(child, value) for child in node["children"]]
        match node["value"], arguments:
            case "join", [str(separator), list(items)]:
                self._spend(len(separator) * len(items) // 64)
                self._weigh(items)
            case (("contains" | "to_string"), _):
                self._weigh(arguments)
            case _:
                self._spend(sum(len(a) for a in arguments if isinstance(a, (list, dict))))
        return self._functions.call_function(node["value"], arguments)

    def check(self, value: Json) -> None:
        """Raises unless the value is plain JSON of a size within the budget."""
        self._weigh([value], strict=True)

    def _weigh(self, values: list[Json], *, strict: bool = False) -> None:
        level = values
        self._spend(len(level))
        for _ in range(MAX_VALUE_NESTING):
            below: list[Json] = []
            for value in level:
                if isinstance(value, str):
                    self._spend(len(value) // 64)
                elif isinstance(value, (list, dict)):
                    self._spend(len(value))
                    below.extend(value if isinstance(value, list) else value.values())
                elif strict and isinstance(value, float) and not math.isfinite(value):
                    raise _Refused("the result is not a finite number")
                elif strict and isinstance(value, int) and not -LARGEST_INTEGER < value < LARGEST_INTEGER:
                    raise _Refused("the result is an integer of more than 4,300 digits")
                elif strict and not (value is None or isinstance(value, (bool, int, float))):
                    raise _Refused("the result is not a value (is there an `&` too many?)")
            if not below:
                return
            level = below
        raise _Refused(f"a value is nested deeper than {MAX_VALUE_NESTING} levels")
