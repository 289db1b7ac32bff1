"""Whatever values an expression meets, it gives a value that can be recorded, or it is an expression error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jmespath.functions import Functions

from fanfold.engine.language.templates import ExpressionError, compile_template
from fanfold.engine.payload import dump
from fanfold.engine.record.run import Reason, Run, Status
from tests.support.virtual import virtually
from tests.support.world import World

LONGEST = 10**4299 * 9
"""An integer of 4,300 digits, the most that Python's JSON reads and writes."""


def deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"x": value}
    return value


def evaluated(source: Any, given: Any) -> Any:
    template, problems = compile_template(source, "")
    assert template is not None, problems
    return template.evaluate({"input": given, "steps": {}, "run": {}, "item": given, "index": 0})


def outcome(source: Any, given: Any) -> tuple[Any, str]:
    """The value, and what is said instead of one."""
    try:
        return evaluated(source, given), ""
    except ExpressionError as error:
        return None, str(error)


odd_texts = st.sampled_from(
    ["", "\ud800", "\u0000", "e\u0301", "１２", "1_000", " 7", "-", "1e400", "9" * 5_000, "x" * 9_000]
)
odd_numbers = st.sampled_from([0, -0.0, 5e-324, 1.7e308, -1.7e308, 2**53 + 1, 10**400, LONGEST, -LONGEST])
atoms = (st.none() | st.booleans() | st.integers() | odd_numbers | st.floats(allow_nan=False, allow_infinity=False)) | (
    st.text(max_size=6) | odd_texts
)
hostile = (
    st.recursive(
        atoms | st.integers(0, 90).map(deep) | st.lists(odd_numbers, min_size=2, max_size=4),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abx\ud800"), inner, max_size=3),
        max_leaves=16,
    )
    | st.lists(odd_numbers, min_size=2, max_size=4)
    | st.lists(st.sampled_from([LONGEST, LONGEST - 1]), min_size=2, max_size=3)
    | st.lists(odd_texts, max_size=6)
)
ARRAYS = ["input", "input[*]", "input[]", "[input[0], input[1]]", "input.*"]
ARGUMENTS = {
    "expref": ["&@", "&a", "&sum(@)", "&to_string(@)", "&[0]", "&length(@)"],
    "array": ARRAYS,
    "array-number": ARRAYS,
    "array-string": ARRAYS,
    "string": ["'a'", "''", "input", "input[0]", "to_string(input)"],
    "object": ["input", "input.a", "{a: input}", "input[0]"],
    "number": ["input", "input[0]", "sum(input)", "`-1`", "to_number(input)"],
}
WRAPPERS = ["{}", "[{}, {}]", "sum([{}, {}])", "length({})", "to_string({})", "{} == {}", "{} < {}", "abs({})", "!{}"]


@st.composite
def calls(draw: st.DrawFn, name: str) -> str:
    """A call of the function, its arguments mostly of the kinds it takes, within something else."""
    taken = [kinds["types"] or sorted(ARGUMENTS) for kinds in Functions.FUNCTION_TABLE[name]["signature"]]
    chosen = [draw(st.sampled_from(ARGUMENTS[draw(st.sampled_from(kinds))])) for kinds in taken]
    call = f"{name}({', '.join(chosen)})"
    wrapper = draw(st.sampled_from(WRAPPERS))
    return wrapper.format(*[call] * wrapper.count("{}"))


@pytest.mark.parametrize("name", sorted(Functions.FUNCTION_TABLE))
@given(data=st.data(), value=hostile, text=st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_function_gives_a_value_that_can_be_recorded_or_an_expression_error(
    name: str, data: st.DataObject, value: Any, text: bool
) -> None:
    call = data.draw(calls(name))
    source = f"it is ${{{call}}}" if text else f"${{{call}}}"
    template, _ = compile_template(source, "")
    if template is None:
        return  # refused when it is registered
    result, error = outcome(source, value)
    dump(result)
    dump(error)
    assert len(error) < 500


@pytest.mark.parametrize(
    "expression",
    [
        "sum(input)",
        "[sum(input)]",
        "{a: sum(input)}",
        "length(sum(input))",
        "join('', [sum(input)])",
        "abs(input)",
        "to_string(sum(input))",
        "to_string(&a)",
        "to_array(&a)",
        "avg(input)",
    ],
)
def test_what_no_json_can_say_is_an_expression_error_of_a_short_sentence(expression: str) -> None:
    for source in (f"${{{expression}}}", f"it is ${{{expression}}}"):
        with pytest.raises(ExpressionError) as refused:
            evaluated(source, [LONGEST, LONGEST])
        assert len(str(refused.value)) < 300


def test_a_function_given_the_wrong_kind_of_value_names_the_kinds_and_not_the_value() -> None:
    with pytest.raises(ExpressionError) as refused:
        evaluated("${length(input)}", 7)
    assert (
        str(refused.value) == "${length(input)}: length() takes a string, an array or an object, and was given a number"
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1_000", None),
        (" 7", None),
        ("+7", None),
        ("007", None),
        ("１２", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("7\n", None),
        ("-7", -7),
        ("0", 0),
        ("1.50", 1.5),
        ("-2e3", -2000.0),
        ("1E+2", 100.0),
    ],
)
def test_a_text_is_a_number_where_json_says_so(text: str, number: float | None) -> None:
    found = evaluated("${to_number(input)}", text)
    assert (found, type(found)) == (number, type(number))


SUM = "${sum(input.n)}"
SLOTS: dict[str, dict[str, Any]] = {
    "input": {"steps": {"a": {"task": "core.echo", "input": {"x": SUM}}}},
    "text": {"steps": {"a": {"task": "core.echo", "input": f"it is {SUM}"}}},
    "when": {"steps": {"a": {"task": "core.echo", "when": "${length(sum(input.n))}"}}},
    "over": {"steps": {"a": {"map": {"task": "core.echo", "over": "${[sum(input.n)]}"}}}},
    "until": {"steps": {"a": {"wait": {"until": SUM}}}},
    "item": {"steps": {"a": {"map": {"task": "core.echo", "over": "${[`1`]}", "input": SUM}}}},
    "output": {"steps": {"a": {"task": "core.echo"}}, "output": SUM},
}


@pytest.mark.parametrize("slot", SLOTS)
@virtually
async def test_an_integer_too_long_for_json_fails_its_step_wherever_it_is_made(slot: str) -> None:
    run: Run = await World().play(SLOTS[slot], {"n": [LONGEST, LONGEST]}, within=60)
    assert (run.status, run.reason, run.epoch) == (Status.FAILED, Reason.STEP_FAILED, 1)
    assert run.error is not None
    assert run.error.type == ("items_failed" if slot == "item" else "expression_error")
    assert "expression_error" in f"{run.error}"
