"""What ${…} means: values and text, references, what is refused, and that nothing gets out of hand."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanfold.engine.language.templates import ExpressionError, Template, compile_template

SCOPE: dict[str, Any] = {
    "input": {
        "n": 3,
        "s": "text",
        "null": None,
        "list": [1, {"p": "}"}],
        "people": [{"name": "a", "age": 2}, {"name": "b", "age": 1}],
    },
    "steps": {
        "one": {"status": "succeeded", "output": {"x": [10, 20]}, "error": None},
        "my-step": {"status": "failed", "output": None, "error": {"type": "boom", "message": "it broke"}},
    },
    "run": {"id": "r1", "tenant": "t"},
}


def compiled(source: Any) -> Template:
    template, problems = compile_template(source, "")
    assert template is not None, problems
    return template


def value(source: Any) -> Any:
    return compiled(source).evaluate(SCOPE)


def refusal(source: Any) -> str:
    template, problems = compile_template(source, "/at")
    assert template is None
    return "\n".join(f"{p.pointer}: {p.detail}" for p in problems)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("${input.n}", 3),
        ("${input.list}", [1, {"p": "}"}]),
        ("${ input.s }", "text"),
        ("${steps.one.output.x[1]}", 20),
        ("${run.id}", "r1"),
        ("${steps.one}", SCOPE["steps"]["one"]),
        ('${steps."my-step".error.type}', "boom"),
        ("${steps.my-step.error.type}", "boom"),
        ("${ [steps.my-step.status, steps . one . status] }", ["failed", "succeeded"]),
        ("${sort_by(input.people, &age)[*].name}", ["b", "a"]),
        ("${input.n > `2` && steps.one.status == 'succeeded'}", True),
    ],
)
def test_a_string_that_is_one_expression_is_the_value_itself(source: str, expected: Any) -> None:
    assert value(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("n=${input.n}", "n=3"),
        ("${input.s}${input.s}", "texttext"),
        (" ${input.n}", " 3"),
        ("${input.list}!", '[1,{"p":"}"}]!'),
        ("<${input.null}>", "<>"),
        ("<${input.absent.deeper}>", "<>"),
        ("${input.n > `2`}.", "true."),
    ],
)
def test_inside_other_text_a_value_is_put_in_as_text(source: str, expected: str) -> None:
    assert value(source) == expected


@pytest.mark.parametrize("source", ["${input.absent}", "${steps.one.output.y.z}", "${steps.never.output}", "${item}"])
def test_what_is_not_there_is_null(source: str) -> None:
    assert value(source) is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("$${input.n}", "${input.n}"),
        ("$$${input.n}", "$${input.n}"),
        ("a $${b} ${input.n}", "a ${b} 3"),
        ("${input.n}$${", "3${"),
        ("$ {input} $5 } {", "$ {input} $5 } {"),
        ("${'$'}${input.n}", "$3"),
        ("all in all ${'$'}${input.n}.00, not $$${input.n}", "all in all $3.00, not $${input.n}"),
        ("${'$${'}", "$${"),
    ],
)
def test_a_doubled_dollar_is_a_literal_one(source: str, expected: str) -> None:
    assert value(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("${input.list[?p=='}'] | [0].p}", "}"),
        ("${ {a: input.n, b: {c: input.s}} }", {"a": 3, "b": {"c": "text"}}),
        ('${`{"a": "}"}`}', {"a": "}"}),
        ('${input."}"}', None),
        (r"${'it\'s }'}", "it's }"),
        (r'${`"a\`}"`}', "a`}"),
    ],
)
def test_a_brace_in_quotes_or_in_a_hash_does_not_end_an_expression(source: str, expected: Any) -> None:
    assert value(source) == expected


def test_a_template_is_evaluated_all_through_and_its_keys_are_left_alone() -> None:
    source = {"${a}": ["${input.n}", {"deep": "x ${input.s}"}], "plain": [1, None, True, 2.5, "text"]}
    assert value(source) == {"${a}": [3, {"deep": "x text"}], "plain": [1, None, True, 2.5, "text"]}


def test_a_template_knows_what_it_reads() -> None:
    template = compiled(
        {
            "a": "${steps.one.output.x} of ${input.n}",
            "b": ["${steps.two.status}", "${steps.three.error.message}", "${keys(steps.four)}", "${length(run.id)}"],
        }
    )
    assert template.roots == {"steps", "input", "run"}
    assert template.steps == {"one", "two", "three", "four"}
    assert template.outputs == {"one", "four"}


def test_names_inside_a_projection_are_fields_of_its_elements() -> None:
    template = compiled("${input.list[?steps.x == `1`].foo | [0].bar}")
    assert (template.roots, template.steps) == ({"input"}, frozenset())


@pytest.mark.parametrize(
    ("source", "single"),
    [("${input}", True), ("${input} ", False), ("${input}${run}", False), (["${input}"], False), ("text", False)],
)
def test_a_template_knows_whether_it_is_exactly_one_expression(source: Any, single: bool) -> None:
    assert compiled(source).single is single


@pytest.mark.parametrize(
    "use", ["steps", "steps.*", "keys(steps)", "steps[0]", "steps | one", "[steps]", "steps.*.output"]
)
def test_steps_without_a_name_is_refused(use: str) -> None:
    assert "must be followed by a step's name" in refusal(f"${{{use}}}")


@pytest.mark.parametrize("use", ["@", "@.steps.one.output", "*", "keys(@)", "[@][0].steps", "[?a]", "{all: @}"])
def test_the_scope_as_a_whole_is_refused(use: str) -> None:
    assert "it must begin with a name" in refusal(f"${{{use}}}")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("${foo.bar}", "there is no `foo`; there is input, steps, run, item, index"),
        ("${steps.one.result}", "a step has status, output, error, but no result"),
        ("${input.a", "not closed by `}`"),
        ("${'}", "not closed by `}`"),
        ("${}", "no expression"),
        ("${input.}", "no JMESPath expression"),
        ("${input[1:}", "no JMESPath expression"),
        ("${input.my-field}", "no JMESPath expression"),
        ("${input ! 1}", "no JMESPath expression"),
        ("${`foo`}", "literal `foo` is not JSON"),
        ("${`NaN`}", "literal `NaN` is not JSON"),
        ("${nope(input)}", "no function nope()"),
        ("${length()}", "takes 1 argument(s), not 0"),
        ("${&input}", "`&` belongs inside a function's parentheses"),
        ("${" + "!" * 4_000 + "input}", "nested too deeply"),
        ("${" + "(" * 60 + "!" * 60 + "input" + ")" * 60 + "}", "nested too deeply"),
        ("${" + "input." * 1_000 + "a}", "longer than"),
    ],
)
def test_a_bad_expression_is_told_in_a_sentence(source: str, said: str) -> None:
    assert said in refusal(source)


def test_every_problem_is_told_with_its_place() -> None:
    told = refusal({"a/b": ["${x}", {"~": "${y} and ${steps}"}]})
    assert [line.split(": ")[0] for line in told.splitlines()] == ["/at/a~1b/0", "/at/a~1b/1/~0", "/at/a~1b/1/~0"]


def test_a_template_nested_too_deeply_is_a_problem_and_no_traceback() -> None:
    source: Any = "x"
    for _ in range(40):
        source = [source]
    assert "nested deeper than" in refusal(source)


@pytest.mark.parametrize(
    "expression",
    [
        "input.s < `1`",
        "length(input.n)",
        "contains('abc', `1`)",
        "input.list[::0]",
        "to_number('1e999')",
        "sum([`1e308`, `1e308`])",
        "ceil(to_number('1e999'))",
        "max_by(input.list, &p)",
        "join(',', input.list)",
        "`" + "[" * 500 + "]" * 500 + "`",
    ],
)
def test_what_cannot_be_computed_is_an_expression_error(expression: str) -> None:
    with pytest.raises(ExpressionError, match=r"^\$\{"):
        value(f"${{{expression}}}")


@pytest.mark.parametrize(
    "expression",
    [
        "[input, input]" + " | [@, @]" * 35,
        "[input.list, input.list][]" + "|[@,@][]" * 27,
        "input.s" + "|join('', [@, @])" * 35,
        "to_string([input, input]" + "|[@, @]" * 35 + ")",
        "[[input] | " + "|".join(["[@, @]"] * 30) + "] == [[input] | " + "|".join(["[@, @]"] * 30) + "]",
    ],
)
def test_an_expression_that_multiplies_its_values_is_stopped(expression: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ExpressionError, match="too much"):
        value(f"${{{expression}}}")
    assert time.monotonic() - begun < 20


def test_a_big_value_is_no_reason_to_stop() -> None:
    many = [{"id": n, "name": f"n{n}"} for n in range(50_000)]
    template = compiled("${sort_by(input, &id)[?id > `49997`].name}")
    assert template.evaluate({"input": many}) == ["n49998", "n49999"]
    assert compiled("${input}").evaluate({"input": many}) is many


def test_text_does_not_grow_without_bound() -> None:
    template = compiled("${input.s}" * 100)
    with pytest.raises(ExpressionError, match="text grows"):
        template.evaluate({"input": {"s": "x" * 100_000}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
words = "input steps one run length sort_by to_number steps.one.output input.a 'a' \"b\" `1` || == [? []"
pieces = st.sampled_from([*words.split(" "), *".[]*{}()@&|!<,:`'\"\\-01 "])


@given(value=json_values)
@settings(max_examples=60)
def test_text_without_an_expression_is_itself(value: Any) -> None:
    template, _ = compile_template(value, "")
    if template is not None and "${" not in json.dumps(value):
        assert template.evaluate({}) == value


@given(expression=st.lists(pieces, max_size=14).map("".join), scope=json_values)
@settings(max_examples=400)
def test_any_text_is_a_problem_or_a_template_that_gives_json(expression: str, scope: Any) -> None:
    template, problems = compile_template(f"${{{expression}}}", "")
    assert (template is None) == bool(problems)
    if template is None:
        return
    try:
        result = template.evaluate({"input": scope, "steps": {}, "run": scope})
    except ExpressionError:
        return
    json.dumps(result, allow_nan=False)
