"""Expressions that never mean what was meant are refused when a document is registered, and no others are."""

from __future__ import annotations

from typing import Any

import pytest

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language.document_check import check
from fanfold.engine.language.templates import compile_template
from fanfold.engine.language.workflow import load

BARE = "is a field here: for the literal write it in backticks"
EMPTY = "a filter's result has no null in it"


def a_document(expression: str) -> dict[str, Any]:
    step = {"task": "core.echo", "input": {"x": [f"${{{expression}}}"]}}
    return {"name": "flow", "steps": {"m-1": {"task": "core.echo"}, "a": {**step, "needs": ["m-1"]}}}


def problems(expression: str) -> list[tuple[str, str]]:
    try:
        check(a_document(expression), name=None, tasks={"core.echo"}, classes={"model": 840.0})
    except InvalidDocument as refused:
        return [(problem.pointer, problem.detail) for problem in refused.problems]
    return []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("input[?ok == true]", [BARE]),
        ("input[?false != ok].name", [BARE]),
        ("input[?(ok == true) && x].name", [BARE]),
        ("length(steps.m-1.output[?@ == null])", [EMPTY]),
        ("length(steps.m-1.output[?@ == `null`])", [EMPTY]),
        ("steps.m-1.output[?`null` == @] | [0]", [EMPTY]),
        ("steps.m-1.output[?@ == `null`].x.y", [EMPTY]),
        ("map(&[?@ == `null`], input)", [EMPTY]),
    ],
)
def test_a_comparison_that_can_not_be_meant_is_a_problem_that_names_the_right_way(
    expression: str, said: list[str]
) -> None:
    found = problems(expression)
    assert [pointer for pointer, _ in found] == ["/steps/a/input/x/0"] * len(said)
    for (_, detail), part in zip(found, said, strict=True):
        assert part in detail


@pytest.mark.parametrize(
    "expression",
    [
        "input[?x == `null`]",
        "input[?x == null || x != null]",
        "input[?ok == `true`].name",
        'input[?ok == "true"].name',
        "input[?ok == 'true'].name",
        "input[?true.x == `1`]",
        "input[?x.null == `1`]",
        "input[?x == null.y]",
        "input[*].{null: x, true: y}",
        "input[*].true",
        "input[?nullable == x]",
        "input[?@ != `null`]",
        "input[?@ == `null` || x]",
        "length(steps.m-1.output[?@ == `null`].type(@))",
        "steps.m-1.output == `null`",
        "length(map(&type(@), steps.m-1.output)[?@ == 'null'])",
    ],
)
def test_what_may_be_meant_is_no_problem(expression: str) -> None:
    assert problems(expression) == []


def test_the_way_that_the_problem_names_counts_what_is_null() -> None:
    template, _ = compile_template("${length(input[?@ == `null`].type(@))}", "")
    assert template is not None
    assert template.evaluate({"input": [None, 1, None, {"x": None}]}) == 2


def test_a_document_that_was_registered_with_such_an_expression_is_loaded() -> None:
    document = a_document("input[?ok == true]")
    assert len(load(document, version="v", max_step_seconds=60.0).steps) == 2


def test_a_bare_literal_outside_a_filter_is_told_how_it_is_written() -> None:
    ((_, detail),) = problems("input.x == true")
    assert detail.endswith("(the literal is written `` `true` ``)")
