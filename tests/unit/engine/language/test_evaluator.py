"""Expressions mean what the library's own interpreter makes of them, and cost what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jmespath.functions import Functions as Library
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from fanfold.engine.language.budget import STEP_BYTES, STEP_NODES, Budget, Refused
from fanfold.engine.language.evaluator import build
from fanfold.engine.language.functions import Functions
from fanfold.engine.language.templates import ExpressionError, compile_template

atoms = st.none() | st.booleans() | st.sampled_from([0, 1, -1, 2.5, 0.0, 1.0, "", "a", "b", "1"])
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)
LEAVES = [
    "a",
    "b",
    "@",
    "`0`",
    "`1`",
    "`true`",
    "`[1, 2]`",
    "'a'",
    "`null`",
    "*",
    "[*]",
    "[]",
    "[0]",
    "[-1]",
    "[::2]",
    "[1:]",
]


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    templates = [
        "{}.b",
        "{}[0]",
        "{}[-2]",
        "{}[*].a",
        "{}[]",
        "{}.*",
        "{}[:2]",
        "!{}",
        "({})",
        "{{x: {}}}",
        "[{}]",
        "map(&a, {})",
    ]
    pairs = [
        "{} | {}",
        "{} == {}",
        "{} != {}",
        "{} < {}",
        "{} >= {}",
        "{} && {}",
        "{} || {}",
        "[{}, {}]",
        "{{x: {}, y: {}}}",
    ]
    by = [
        "sort_by({}, &{})",
        "min_by({}, &{})",
        "max_by({}, &{})",
        "{}[?{}]",
        "{}[?{}].a",
        "{}[].[{}]",
        "map(&{1}, {0})",
    ]
    names = st.sampled_from(sorted(Library.FUNCTION_TABLE))
    calls = st.tuples(names, inner, inner).map(
        lambda given: f"{given[0]}({', '.join(given[1:][: len(Library.FUNCTION_TABLE[given[0]]['signature'])])})"
    )
    return (
        st.tuples(st.sampled_from(templates), inner).map(lambda given: given[0].format(given[1]))
        | st.tuples(st.sampled_from(pairs + by), two).map(lambda given: given[0].format(*given[1]))
        | calls
    )


expressions = st.recursive(st.sampled_from(LEAVES), _grow, max_leaves=8)


def by_the_library(tree: Any, value: Any) -> Any:
    try:
        return TreeInterpreter(Options(custom_functions=Functions())).visit(tree, value)
    except Exception:
        return "an error"


def by_us(tree: Any, value: Any) -> Any:
    try:
        return build(tree)(value, Budget())
    except Exception:
        return "an error"


@given(expression=expressions, value=values)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_an_expression_means_what_the_library_makes_of_it(expression: str, value: Any) -> None:
    try:
        tree = Parser().parse(expression).parsed
    except Exception:
        return  # no expression
    expected, found = by_the_library(tree, value), by_us(tree, value)
    assert (found, repr(found)) == (expected, repr(expected))


@given(expression=expressions, value=values, nodes=st.integers(0, 60))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_an_expression_costs_is_the_same_each_time_and_one_node_less_is_too_little(
    expression: str, value: Any, nodes: int
) -> None:
    try:
        evaluate = build(Parser().parse(expression).parsed)
    except Exception:
        return  # no expression

    def spent(most: int) -> tuple[int, int] | str:
        budget = Budget(most)
        try:
            evaluate(value, budget)
        except Refused:
            return "refused"
        except Exception:
            return "an error"
        return most - budget.nodes, STEP_BYTES - budget.bytes

    cost = spent(STEP_NODES)
    assert cost == spent(STEP_NODES)
    if isinstance(cost, tuple) and cost[0] > 0:
        assert spent(cost[0]) == cost
        assert spent(cost[0] - 1) == "refused"


TEXT = "x" * 4_000_000
NUMBERS = list(range(80_000))
LONG = -(10**4_299)
"""Whose digits take a third of a millisecond to be made."""


def evaluated(source: Any, given: Any) -> Any:
    template, problems = compile_template(source, "")
    assert template is not None, problems
    return template.evaluate({"input": given})


@pytest.mark.parametrize(
    ("source", "given"),
    [
        (["${length(reverse(input))}"] * 400, TEXT),
        (["${contains(input, 'xy')}"] * 3, TEXT),
        (["${to_string([input])}"] * 5, TEXT),
        (["${input == join('', [input])}"] * 10, TEXT),
        (["${starts_with(input, input)}"] * 10, TEXT),
        (["${sort_by(input, &@)[0]}"] * 20, NUMBERS),
        (["${max_by(input, &@)}"] * 20, NUMBERS),
        (["${sort(input)[0]}"] * 20, NUMBERS),
        (["${length(reverse(input))}"] * 100, NUMBERS),
        (["${length(input[::-1])}"] * 100, NUMBERS),
        (["${length(input[].[@, @][])}"] * 20, NUMBERS),
        (["${sort_by(input, &@)[0]}"], [f"{'x' * 1_000}{n}" for n in range(4_000)]),
        (["${sort(input)[0]}"], [f"{'x' * 1_000}{n}" for n in range(4_000)]),
        (["${length(keys(input))}"] * 100, {f"{'k' * 40}{n}": n for n in range(80_000)}),
        (["a ${input}"], [1] * 1_000_000),
        (["a ${input}"] * 10, TEXT),
        ("${to_string(input)}", [LONG] * 100),
        ("a ${input}", [LONG] * 100),
        ("${input[*].to_string(@)}", [LONG] * 100),
        ("${input[*].abs(@)}", [LONG] * 100),
        ("${input[*].sum([@])}", [LONG] * 100),
        ("${[input[*]]}", [LONG] * 100),
        (["${to_string(input[0])}"] * 100, [LONG]),
        (["a ${input[0]}"] * 100, [LONG]),
    ],
)
def test_what_goes_through_much_in_few_nodes_is_stopped_as_what_has_many(source: Any, given: Any) -> None:
    with pytest.raises(ExpressionError, match="too much"):
        evaluated(source, given)


@pytest.mark.parametrize(
    ("source", "given", "expected"),
    [
        ("${length(input)}", [1] * 2_000_000, 2_000_000),
        ("${sum(input)}", [1] * 500_000, 500_000),
        ("${length(to_string(input))}", [10**616] * 1_000, 618_001),
        ("${sort_by(input, &@)[-1]}", NUMBERS, 79_999),
        ("${length(input[?@ > `10`])}", NUMBERS, 79_989),
        ("${length(reverse(input))}", TEXT, 4_000_000),
        ("a${input}", TEXT, f"a{TEXT}"),
    ],
)
def test_one_look_at_the_biggest_values_is_within_the_budget(source: str, given: Any, expected: Any) -> None:
    assert evaluated(source, given) == expected


def test_the_clock_that_a_caller_gives_is_the_last_resort() -> None:
    ticks = iter(range(100))
    template, _ = compile_template("${input[*].a}", "")
    assert template is not None
    with pytest.raises(ExpressionError, match="too long"):
        template.evaluate({"input": [{"a": 1}]}, Budget(clock=lambda: float(next(ticks))))
