"""Workflow documents and expressions of strangers: refused with every reason, at a cost linear in their size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language.budget import Budget
from fanfold.engine.language.calling import RETRY_KEYS
from fanfold.engine.language.document_check import DOCUMENT_KEYS, MAX_BYTES, check, problems_of
from fanfold.engine.language.expressions import compile_expression
from fanfold.engine.language.step_kinds import STEP_KEYS
from fanfold.engine.language.templates import ExpressionError, compile_template
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import dump
from fanfold.text.document_text import MalformedText, from_text
from tests.support.examples import examples

TASKS = frozenset({"core.echo", "core.collect"})
CLASSES = {"model": 840.0}

WORDS = st.sampled_from(
    [
        *DOCUMENT_KEYS,
        *STEP_KEYS,
        *RETRY_KEYS,
        *("a", "b", "core.echo", "succeeded", "any", "continue", "signal", "for", "until", "over", "via", "auto"),
        *("${input}", "${steps.a.output}", "${item}", "${", "$${", "${steps.*}", "${input | [@, @]}", "30s", "9" * 40),
        *("\x00", "\ud800", "a/b~c", "é", "7d", "1e999", "-5s", "00:00", "percent", "percent ", "tolerate"),
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**40, -1, 2**63, 0.0, 1e308]),
    st.floats(),
    WORDS,
    st.text(max_size=20),
)
GARBAGE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5),
    max_leaves=40,
)
NAMES = st.sampled_from([f"s{number}" for number in range(12)])
STEPS = st.fixed_dictionaries(
    {"task": st.sampled_from(["core.echo", "core.collect", "no.such"])},
    optional={
        "needs": st.lists(NAMES, max_size=4),
        "join": st.sampled_from(["succeeded", "settled", "any"]) | GARBAGE,
        "when": st.sampled_from(["${input.x}", "${steps.s1.output > `3`}"]) | GARBAGE,
        "input": GARBAGE,
        "retry": st.dictionaries(st.sampled_from(RETRY_KEYS), LEAVES, max_size=3) | GARBAGE,
        "timeout": st.sampled_from(["5s", "1m", "400d"]) | GARBAGE,
        "map": GARBAGE,
        "wait": GARBAGE,
        "fail": st.fixed_dictionaries({"message": WORDS}, optional={"type": LEAVES}) | GARBAGE,
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {"name": st.sampled_from(["w", "W", ""]) | LEAVES, "steps": st.dictionaries(NAMES, STEPS | GARBAGE, max_size=12)},
    optional={"output": GARBAGE, "class": LEAVES, "timeout": LEAVES, "queue_timeout": LEAVES},
)


def checked(document: Any) -> Workflow | InvalidDocument:
    """The workflow, or all that is wrong with it; nothing else may come of a stranger's document."""
    try:
        return check(document, name=None, tasks=TASKS, classes=CLASSES)
    except InvalidDocument as error:
        return error


@settings(**examples(150), suppress_health_check=list(HealthCheck))
@given(GARBAGE | DOCUMENTS)
def test_whatever_a_document_is_it_is_a_workflow_or_a_list_of_problems(document: Any) -> None:
    result = checked(document)
    if isinstance(result, Workflow):
        assert list(result.steps) == list(document["steps"])
        return
    assert result.problems
    for problem in result.problems:
        assert problem.detail
        assert problem.pointer == "" or problem.pointer.startswith("/")
        dump(problem.pointer)


@settings(**examples(100), suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, st.lists(NAMES, max_size=6, unique=True), min_size=1, max_size=12))
def test_a_graph_is_accepted_exactly_when_it_has_no_cycle(needs: dict[str, list[str]]) -> None:
    steps = {
        name: {"task": "core.echo", "needs": [needed for needed in needed_by if needed in needs]}
        for name, needed_by in needs.items()
    }
    result = checked({"name": "w", "steps": steps})
    assert isinstance(result, Workflow) is acyclic({name: step["needs"] for name, step in steps.items()})


def acyclic(needs: dict[str, Any]) -> bool:
    """By taking away what needs nothing, until nothing is left or nothing can be taken."""
    left = {name: set(needed) for name, needed in needs.items()}
    while free := [name for name, needed in left.items() if not needed]:
        for name in free:
            del left[name]
        left = {name: needed.difference(free) for name, needed in left.items()}
    return not left


# --- cost -------------------------------------------------------------------------------------


def work(call: Callable[[], object]) -> int:
    """How many calls of functions, Python's and the interpreter's own, something takes: no clock is asked."""
    compile_expression.cache_clear()
    count = 0

    def event(frame: Any, kind: str, argument: Any) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(event)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


def chain(size: int) -> Any:
    steps = {f"s{n}": {"task": "core.echo", "needs": [f"s{n - 1}"] if n else []} for n in range(size)}
    return {"name": "w", "steps": steps}


def wide(size: int) -> Any:
    steps: dict[str, Any] = {f"s{n}": {"task": "core.echo"} for n in range(size)}
    return {"name": "w", "steps": steps | {"last": {"task": "core.collect", "needs": list(steps)}}}


def ring(size: int) -> Any:
    steps = {f"s{n}": {"task": "core.echo", "needs": [f"s{(n + 1) % size}"]} for n in range(size)}
    return {"name": "w", "steps": steps}


def rings(size: int) -> Any:
    steps = {f"s{n}": {"task": "core.echo", "needs": [f"s{n ^ 1}"]} for n in range(size)}
    return {"name": "w", "steps": steps}


def strangers(size: int) -> Any:
    return {"name": "w", "steps": {f"s{n}": {"task": f"no.such{n}", "needs": [f"x{n}"], "z": 1} for n in range(size)}}


def unclosed(size: int) -> Any:
    return {"name": "w", "steps": {"a": {"task": "core.echo", "input": "${" * size}}}


def quoted(size: int) -> Any:
    return {"name": "w", "steps": {"a": {"task": "core.echo", "input": "${'}" * size}}}


def expressions(size: int) -> Any:
    return {"name": "w", "steps": {"a": {"task": "core.echo", "input": [f"${{input.f{n}}}" for n in range(size)]}}}


def readers(size: int) -> Any:
    later = {f"r{n}": {"task": "core.echo", "needs": ["a"], "input": "${steps.a.output}"} for n in range(size)}
    return {"name": "w", "steps": {"a": {"task": "core.echo"}} | later}


@pytest.mark.parametrize(
    "make",
    [chain, wide, ring, rings, strangers, unclosed, quoted, expressions, readers],
    ids=lambda make: make.__name__,
)
def test_checking_a_document_takes_work_linear_in_its_size(make: Callable[[int], Any]) -> None:
    small, large = make(250), make(2_000)
    assert len(dump(large)) < MAX_BYTES
    checked(make(10))  # what is prepared once is no document's cost
    # Eight times the size; twice for what a cache of expressions still spares the small one. A square would be 64.
    assert work(lambda: checked(large)) < 8 * 2 * work(lambda: checked(small))


def test_a_document_over_the_limit_is_told_so_and_looked_at_no_further() -> None:
    big = {"name": "w", "steps": {f"s{n}": {"task": "no.such", "input": "x" * 400} for n in range(5_000)}}
    problems = problems_of(big, name=None, tasks=TASKS, classes=CLASSES)
    assert [problem.pointer for problem in problems] == [""]


def many_keys(size: int) -> str:
    return "".join(f"k{n}: {n}\n" for n in range(size))


def merges(size: int) -> str:
    """Each mapping takes in one of as many keys: PyYAML copies the pairs of all of them."""
    return f"a: &a {{{', '.join(f'k{n}: 1' for n in range(size))}}}\nb: [{', '.join(['{<<: *a}'] * size)}]\n"


def merge_chain(size: int) -> str:
    return "m0: &m0 {k0: 1}\n" + "".join(f"m{n}: &m{n} {{<<: *m{n - 1}, k{n}: 1}}\n" for n in range(1, size))


def merge_list(size: int) -> str:
    return f"a: &a {{x: 1}}\nb: {{<<: [{', '.join(['*a'] * size)}]}}\n"


def sixties(size: int) -> str:
    return "a: 1" + ":10" * size + ".5\n"


def digits(size: int) -> str:
    return "a: 1." + "1" * size + "\n"


def aliases(size: int) -> str:
    return "a: &a [1]\n" + "".join(f"k{n}: *a\n" for n in range(size))


def anchors(size: int) -> str:
    return "".join(f"k{n}: &k{n} 1\n" for n in range(size))


def open_lists(size: int) -> str:
    return "[" * size


def open_blocks(size: int) -> str:
    return "- " * size


def open_keys(size: int) -> str:
    return "? " * size


def open_flows(size: int) -> str:
    return "{a: " * size


def long_text(size: int) -> str:
    return "a: |\n" + "  x\n" * size


def breaks(size: int) -> str:
    return "a: 'x" + "\x85\u2028" * size + "'\n"


def tag_directives(size: int) -> str:
    return "".join(f"%TAG !a{n}! x\n" for n in range(size)) + "--- 1\n"


YAML = [
    *(many_keys, merge_list, sixties, digits, aliases, anchors, open_lists, open_blocks, open_keys, open_flows),
    *(long_text, breaks, tag_directives),
]


def read(text: str) -> None:
    with suppress(MalformedText):
        from_text(text)


@pytest.mark.parametrize("make", YAML, ids=lambda make: make.__name__)
def test_reading_yaml_takes_work_linear_in_its_size(make: Callable[[int], str]) -> None:
    read(make(10))
    assert work(lambda: read(make(4_000))) < 8 * 1.3 * work(lambda: read(make(500)))


@pytest.mark.parametrize("make", [merges, merge_chain], ids=lambda make: make.__name__)
def test_the_pairs_that_merge_keys_copy_are_counted(make: Callable[[int], str]) -> None:
    with pytest.raises(MalformedText, match=r"line \d+, column \d+: .* more than 500,000 values"):
        from_text(make(1_100))
    assert work(lambda: read(make(4_000))) < 1.5 * work(lambda: read(make(2_000)))


def test_directives_that_are_compared_with_each_other_are_few() -> None:
    with pytest.raises(MalformedText, match="too many %TAG"):
        from_text(tag_directives(101))


def test_texts_that_aliases_repeat_are_counted() -> None:
    with pytest.raises(MalformedText, match="more than 8,000,000 characters"):
        from_text(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n")


YAML_PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            ": ",
            ":",
            "- ",
            "\n",
            "\n  ",
            "\n    ",
            "[",
            "]",
            "{",
            "}",
            ", ",
            "? ",
            "|\n",
            ">-\n",
            "'",
            '"',
            "#",
        ),
        *(
            "&a ",
            "*a ",
            "&b ",
            "*b ",
            "<<: ",
            "!!int ",
            "!!bool ",
            "!!timestamp ",
            "!!binary ",
            "!x ",
            "! ",
            "!!merge ",
        ),
        *(
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "%TAG ! x\n",
            "\t",
            "\x85",
            "\u2028",
            "\x00",
            "\ud800",
            "\ufeff",
            "\\x",
            "~",
        ),
        *("1:30", "010", "0x", "1e999", ".nan", "2026-13-45", "=", "null", "no", "\ue000", "é", "😀", "\r", "\\ud83d"),
    ]
)


@settings(**examples(500), suppress_health_check=list(HealthCheck))
@given(st.lists(YAML_PIECES, max_size=25).map("".join))
def test_whatever_a_text_is_it_is_json_or_refused_in_a_sentence(text: str) -> None:
    with suppress(MalformedText):
        dump(from_text(text))


# --- expressions ------------------------------------------------------------------------------


TOKENS = st.sampled_from(
    [
        *("input", "steps", "run", "a", "output", "@", "*", "[*]", "[]", "[?a]", "[0]", "[::-1]", ".", "|", "||", "&&"),
        *("!", "==", ">", "(", ")", "{", "}", "[", "]", ",", ":", "&", "&a", "'x'", "'", '"', "`1`", "`", "`[1]`"),
        *("length(", "sort_by(", "map(", "join(", "to_string(", "merge(", "values(", "max_by(", "\\", "é", "\x00"),
        *("-1", "99999999999999999999", "$", "${", " "),
    ]
)


@settings(**examples(250), suppress_health_check=list(HealthCheck))
@given(st.lists(TOKENS, max_size=25).map("".join) | st.text(max_size=50), GARBAGE)
def test_an_expression_is_refused_when_read_or_gives_json_or_says_why_not(text: str, value: Any) -> None:
    template, problems = compile_template(f"${{{text}}}", "/input")
    assert (template is None) is bool(problems)
    if template is None:
        return
    scope = {"input": value, "steps": {"a": {"status": "succeeded", "output": [1, {"a": 2}], "error": None}}, "run": {}}
    try:
        result = template.evaluate(scope)
    except ExpressionError:
        return
    if value == value and not has_nan(value):
        dump(result)


def has_nan(value: Any) -> bool:
    """Whether a value is none that could have come through the door."""
    try:
        dump(value)
    except (ValueError, TypeError):
        return True
    return False


BOMBS = {
    "doubling": "input" + " | [@, @]" * 40,
    "doubling text": "input" + " | join('', [to_string(@), to_string(@)])" * 40,
    "objects": "input" + " | {a: @, b: @}" * 40,
    "flattening": "input" + " | [@, @][]" * 25,
    "merging": "input" + " | [@, @, @, @][] | sort_by(@, &to_string(@))" * 15,
    "mapping": "map(&map(&map(&map(&length(to_string(@)), $), $), $), $)".replace("$", "`" + str([1] * 60) + "`"),
    "filters": "input" + "[?contains(to_string(@), 'x')]" * 40,
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_expression_that_explodes_is_stopped_by_its_budget(name: str) -> None:
    text = BOMBS[name]
    template, problems = compile_template(f"${{{text}}}", "/input")
    assert template is not None, problems
    scope = {"input": [1, 2, 3, "x" * 64], "steps": {}, "run": {}}

    def evaluate() -> None:
        try:
            dump(template.evaluate(scope, Budget(20_000)))
        except (ExpressionError, ValueError):
            return

    assert work(evaluate) < 60 * 20_000


def test_many_costly_expressions_in_one_template_share_a_budget() -> None:
    text = "${input" + " | [@, @]" * 16 + "}"
    template, _ = compile_template([text] * 200, "/input")
    assert template is not None
    with pytest.raises(ExpressionError):
        template.evaluate({"input": 1, "steps": {}, "run": {}})
