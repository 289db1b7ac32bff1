"""A run's output has a bound, counted while it is made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanfold.engine.language import template_nodes
from fanfold.engine.language.expressions import TooLarge
from fanfold.engine.language.templates import ExpressionError, compile_template
from fanfold.engine.payload import dump
from fanfold.engine.record.run import Reason, Status
from fanfold.service.settings import Settings
from tests.support.virtual import virtually
from tests.support.world import World, consistent

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=9,
)
templates = st.recursive(
    st.sampled_from(["${input}", "${input.a}", "é ${input}", "${[input, input]}", "plain ü", 7, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=9,
)


@given(source=templates, value=values)
def test_a_value_of_exactly_its_room_is_made_and_one_of_a_byte_more_is_not(source: Any, value: Any) -> None:
    template, problems = compile_template(source, "")
    assert template is not None, problems
    made = template.evaluate({"input": value})
    size = len(dump(made))
    assert template.evaluate({"input": value}, max_bytes=size) == made
    with pytest.raises(TooLarge):
        template.evaluate({"input": value}, max_bytes=size - 1)


def test_no_more_of_a_large_output_is_written_than_passes_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    template, _ = compile_template({f"m{n}": "${input}" for n in range(250)}, "")
    assert template is not None
    written: list[int] = []

    def counted(value: Any) -> bytes:
        data = dump(value)
        written.append(len(data))
        return data

    monkeypatch.setattr(template_nodes, "dump", counted)
    with pytest.raises(TooLarge, match="more than 4,000,000 bytes"):
        template.evaluate({"input": ["x" * 1_500_000]}, max_bytes=4_000_000)
    assert [size for size in written if size > 100] == [1_500_004]


def test_measuring_what_an_output_would_have_is_within_the_budget() -> None:
    nested: Any = ["x" * 400_000]
    for _ in range(90):
        nested = [nested]
    template, _ = compile_template(["${input" + "[0]" * depth + "}" for depth in range(90)], "")
    assert template is not None
    with pytest.raises(ExpressionError, match="too much"):
        template.evaluate({"input": nested}, max_bytes=40_000_000)


@virtually
async def test_a_run_whose_output_is_too_large_fails_and_says_so() -> None:
    document = {"steps": {"a": {"task": "core.echo", "input": "${input}"}}, "output": ["${steps.a.output}"] * 250}
    run = await World(settings=Settings(chaos=True, max_output_bytes=100_000)).play(document, "x" * 50_000)
    consistent(run)
    assert (run.status, run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert run.error is not None
    assert run.error.type == "output_too_large"
    assert "the workflow's output: it has more than 100,000 bytes" in run.error.message


@virtually
async def test_a_run_may_give_back_the_largest_output_of_a_step() -> None:
    document = {"steps": {"a": {"task": "core.echo", "input": "${input}"}}, "output": "${steps.a.output}"}
    run = await World(settings=Settings(chaos=True, max_output_bytes=50_002)).play(document, "x" * 50_000)
    assert run.status is Status.SUCCEEDED


@virtually
async def test_an_input_that_repeats_megabytes_many_times_fails_its_step() -> None:
    step = {"task": "core.echo", "input": ["${input}"] * 250}
    run = await World().play({"steps": {"a": step}}, ["x" * 400_000])
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.type == "expression_error"
    assert "more than 40,000,000 bytes" in run.error.message


@virtually
async def test_an_items_input_that_repeats_megabytes_many_times_fails_the_item() -> None:
    mapped = {"task": "core.echo", "over": "${[input]}", "input": ["${item}"] * 250}
    run = await World().play({"steps": {"a": {"map": mapped}}}, ["x" * 400_000])
    assert run.error is not None
    assert "expression_error" in run.error.message
