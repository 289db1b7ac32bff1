"""Workflow documents: what they mean, what is refused with which words and where, and how they are named."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language import document_check as documents
from fanfold.engine.language.calling import RETRY_KEYS, Jitter, OnInterrupt, RetryPolicy
from fanfold.engine.language.document_check import check
from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.fail_step import FAIL_KEYS
from fanfold.engine.language.map_step import MAP_KEYS
from fanfold.engine.language.step import Join, OnFailure
from fanfold.engine.language.step_kinds import STEP_KEYS
from fanfold.engine.language.workflow import Workflow, canonical, load, version_of

TASKS = ("core.echo", "core.collect", "core.fold", "mock.model", "text.words", "bedrock.converse")
CLASSES = {"model": 840.0, "harness": 3_600.0}
ROOT = Path(__file__).parents[4]


def a_step(**keys: Any) -> dict[str, Any]:
    return {"task": "core.echo", **keys}


def a_document(steps: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {"name": "flow", "steps": {"a": a_step()} if steps is None else steps, **keys}


def checked(document: Any, name: str | None = None) -> Workflow:
    return check(document, name=name, tasks=TASKS, classes=CLASSES)


def problems(document: Any, name: str | None = None) -> dict[str, str]:
    with pytest.raises(InvalidDocument) as caught:
        checked(document, name)
    return {p.pointer: p.detail for p in caught.value.problems}


# --- meaning ----------------------------------------------------------------------------------


def test_what_a_document_leaves_out_has_a_default() -> None:
    workflow = checked(a_document())
    assert (workflow.name, workflow.class_name, workflow.timeout_seconds) == ("flow", "model", 86_400)
    assert (workflow.queue_timeout_seconds, workflow.output) == (None, None)
    step = workflow.steps["a"]
    assert (step.needs, step.join, step.when, step.on_failure) == ((), Join.SUCCEEDED, None, OnFailure.FAIL)
    assert step.input.evaluate({}) == {}
    assert step.timeout_seconds == workflow.longest_step_seconds == 840
    assert step.retry == RetryPolicy()
    assert step.retry.max_attempts == 1


def test_every_key_arrives() -> None:
    workflow = checked(
        a_document(
            {
                "a": a_step(),
                "b": a_step(
                    needs=["a"],
                    join="any",
                    when="${steps.a.output.go}",
                    on_failure="continue",
                    input={"x": "${steps.a.output.x}"},
                    timeout="1.5m",
                    retry={
                        "max_attempts": 7,
                        "backoff": "250ms",
                        "factor": 3,
                        "max_backoff": "10s",
                        "jitter": "none",
                        "on_interrupt": "fail",
                    },
                ),
            },
            timeout="2h",
            queue_timeout="30m",
            output="${steps.b.output}",
            **{"class": "harness"},
        ),
        "flow",
    )
    assert (workflow.class_name, workflow.timeout_seconds, workflow.queue_timeout_seconds) == ("harness", 7_200, 1_800)
    assert workflow.output is not None
    assert workflow.output.outputs == {"b"}
    step = workflow.steps["b"]
    assert (step.needs, step.join, step.on_failure, step.timeout_seconds) == (("a",), Join.ANY, OnFailure.CONTINUE, 90)
    assert step.when is not None
    assert step.when.evaluate({"steps": {"a": {"output": {"go": True}}}}) is True
    assert step.retry == RetryPolicy(
        max_attempts=7,
        backoff_seconds=0.25,
        factor=3.0,
        max_backoff_seconds=10,
        jitter=Jitter.NONE,
        on_interrupt=OnInterrupt.FAIL,
    )
    assert workflow.steps["a"].timeout_seconds == 3_600


def test_a_retry_without_a_number_means_three_attempts() -> None:
    assert checked(a_document({"a": a_step(retry={})})).steps["a"].retry.max_attempts == 3


def test_a_first_delay_over_a_minute_lifts_the_longest_delay_with_it() -> None:
    retry = checked(a_document({"a": a_step(retry={"backoff": "5m"})})).steps["a"].retry
    assert retry.max_backoff_seconds == 300


def test_steps_keep_the_order_of_the_document_and_know_who_depends_on_them() -> None:
    steps = {"z": a_step(needs=["m"]), "m": a_step(), "b": a_step(needs=["m", "z"])}
    workflow = checked(a_document(steps))
    assert list(workflow.steps) == ["z", "m", "b"]
    assert (workflow.dependents("m"), workflow.dependents("z"), workflow.dependents("b")) == (("z", "b"), ("b",), ())


def test_loading_a_registered_document_gives_what_checking_it_gave() -> None:
    document = a_document({"a": a_step(), "b": a_step(needs=["a"], input="${steps.a.output}", timeout="3s")})
    stored = json.loads(canonical(document))
    assert load(stored, version=version_of(document), max_step_seconds=840) == checked(document)


# --- names of versions ------------------------------------------------------------------------


def test_a_version_does_not_depend_on_the_order_of_keys_but_on_that_of_steps() -> None:
    one = {"name": "flow", "steps": {"b": {"task": "t", "input": {"x": 1, "y": 2}}, "a": {"task": "t"}}}
    same = {"steps": {"b": {"input": {"y": 2, "x": 1}, "task": "t"}, "a": {"task": "t"}}, "name": "flow"}
    other = {"name": "flow", "steps": {"a": {"task": "t"}, "b": {"task": "t", "input": {"x": 1, "y": 2}}}}
    assert canonical(one) == canonical(same)
    assert version_of(one) == version_of(same) != version_of(other)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", version_of(one))
    assert list(json.loads(canonical(one))["steps"]) == ["b", "a"]


def test_a_version_never_changes_its_name() -> None:
    # Runs are pinned to these: another hash for an old document would orphan them.
    assert canonical(a_document()) == b'{"name":"flow","steps":{"a":{"task":"core.echo"}}}'
    assert version_of(a_document()) == "sha256:cc60413e280975a39760589c8bdf6592c9c878cd31e468814fe2ff4cc58480ea"


# --- durations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("15m", 900),
        ("24h", 86_400),
        ("7d", 604_800),
        ("1.5h", 5_400),
        ("365d", 31_536_000),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "1 s", "1S", "1w", "1h30m", "1e3s", "٣s", "1s\n", ".5s", "0s", "0.1ms", "366d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        parse_duration(text)


# --- problems ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "pointer", "said"),
    [
        (a_document(colour="red"), "/colour", "unknown key"),
        (a_document(timeuot="5m"), "/timeuot", "did you mean `timeout`?"),
        ({"steps": {"a": a_step()}}, "", "`name` is missing"),
        (a_document(name="Flow"), "/name", "a workflow's name is"),
        (a_document(name="flow\n"), "/name", "a workflow's name is"),
        (a_document(name=7), "/name", "a workflow's name is"),
        ({"name": "flow"}, "", "`steps` is missing"),
        (a_document({}), "/steps", "at least one step"),
        (a_document([a_step()]), "/steps", "not a list"),
        (a_document({"A b": a_step()}), "/steps/A b", "a step's name is"),
        (a_document({"a/~": a_step()}), "/steps/a~1~0", "a step's name is"),
        (a_document({"a": "core.echo"}), "/steps/a", "a step is an object, not a text"),
        (a_document({"a": {}}), "/steps/a", "exactly one of `task`, `map`, `wait` and `fail`; this one has none"),
        (a_document({"a": a_step(wait={})}), "/steps/a", "this one has `task` and `wait`"),
        (a_document({"a": {"map": {}}}), "/steps/a/map", "`over` is missing"),
        (a_document({"a": {"wait": {}}}), "/steps/a/wait", "exactly one of `for`, `until` and `signal`"),
        (a_document({"a": {"wait": "1h"}}), "/steps/a/wait", "must be an object, not a text"),
        (a_document({"a": {"wait": {"for": "1h", "until": "x"}}}), "/steps/a/wait", "this one has `for` and `until`"),
        (a_document({"a": {"wait": {"for": 60}}}), "/steps/a/wait/for", "must be a duration"),
        (a_document({"a": {"wait": {"for": "25h"}}}), "/steps/a/wait/for", "longer than the whole run's timeout"),
        (a_document({"a": {"wait": {"until": 7}}}), "/steps/a/wait/until", "must be a time, or an expression"),
        (a_document({"a": {"wait": {"until": "noon"}}}), "/steps/a/wait/until", "no ISO 8601 time"),
        (a_document({"a": {"wait": {"until": "2030-01-01T00:00"}}}), "/steps/a/wait/until", "no offset from UTC"),
        (a_document({"a": {"wait": {"until": "${steps.b.output}"}}}), "/steps/a/wait/until", "there is no step `b`"),
        (a_document({"a": {"wait": {"signal": "No"}}}), "/steps/a/wait/signal", "a signal's name is"),
        (a_document({"a": {"wait": {"for": "1s", "timeout": "2s"}}}), "/steps/a/wait/timeout", "only a wait for a"),
        (a_document({"a": {"wait": {"signal": "s", "timeout": "9d"}}}), "/steps/a/wait/timeout", "whole run's timeout"),
        (a_document({"a": {"wait": {"for": "1s"}, "input": 1}}), "/steps/a/input", "a wait calls no task"),
        (a_document({"a": {"fail": "no"}}), "/steps/a/fail", "must be an object, not a text"),
        (a_document({"a": {"fail": {}}}), "/steps/a/fail", "`message` is missing: what the run's error says"),
        (a_document({"a": {"fail": {"message": 7}}}), "/steps/a/fail/message", "must be a text, not a number"),
        (a_document({"a": {"fail": {"message": "", "type": "a b"}}}), "/steps/a/fail/type", "an error's type is"),
        (a_document({"a": {"fail": {"message": "", "code": 1}}}), "/steps/a/fail/code", "unknown key"),
        (a_document({"a": {"fail": {"message": "${steps.b.output}"}}}), "/steps/a/fail/message", "no step `b`"),
        (a_document({"a": {"fail": {"message": ""}, "retry": {}}}), "/steps/a/retry", "a fail calls no task"),
        (a_document({"a": {"fail": {"message": ""}, "on_failure": "fail"}}), "/steps/a/on_failure", "a fail ends"),
        (a_document({"a": {"wait": {"for": "1s"}, "retry": {}}}), "/steps/a/retry", "a wait calls no task"),
        (a_document({"a": {"wait": {"for": "1s"}, "timeout": "1s"}}), "/steps/a/timeout", "stands inside `wait`"),
        (a_document({"a": {"wait": {"form": "1s"}}}), "/steps/a/wait/form", "did you mean `for`"),
        (a_document({"a": {"task": "core.ehco"}}), "/steps/a/task", "no task `core.ehco`; did you mean `core.echo`"),
        (a_document({"a": {"task": ["core.echo"]}}), "/steps/a/task", "not a list"),
        (a_document({"a": a_step(needs="b")}), "/steps/a/needs", "not a text"),
        (a_document({"a": a_step(needs=[1])}), "/steps/a/needs/0", "not a number"),
        (a_document({"a": a_step(needs=["x"])}), "/steps/a/needs/0", "there is no step `x`"),
        (a_document({"a": a_step(needs=["a"])}), "/steps/a/needs/0", "can't need itself"),
        (a_document({"a": a_step(), "b": a_step(needs=["a", "a"])}), "/steps/b/needs/1", "twice"),
        (a_document({"a": a_step(join="all")}), "/steps/a/join", "succeeded, settled, any"),
        (a_document({"a": a_step(on_failure=None)}), "/steps/a/on_failure", "fail, continue"),
        (a_document({"a": a_step(timeout=30)}), "/steps/a/timeout", "a text with a unit"),
        (a_document({"a": a_step(timeout="soon")}), "/steps/a/timeout", "a duration is"),
        (
            a_document({"a": a_step(timeout="15m")}),
            "/steps/a/timeout",
            "longer than 840s, the longest step of class `model`",
        ),
        (a_document({"a": a_step(timeout="2m")}, timeout="1m"), "/steps/a/timeout", "the whole run's timeout, 60s"),
        (a_document(timeout="400d"), "/timeout", "at most 365d"),
        (a_document(queue_timeout=None), "/queue_timeout", "not null"),
        (a_document(**{"class": "huge"}), "/class", "no class `huge`; there is `model`, `harness`"),
        (a_document(**{"class": 1}), "/class", "not a number"),
        (a_document({"a": a_step(when="${input.x} ")}), "/steps/a/when", "exactly one expression"),
        (a_document({"a": a_step(when=True)}), "/steps/a/when", "exactly one expression"),
        (a_document({"a": a_step(when="${input.}")}), "/steps/a/when", "no JMESPath expression"),
        (a_document({"a": a_step(input={"x": ["${foo}"]})}), "/steps/a/input/x/0", "there is no `foo`"),
        (a_document({"a": a_step(input="${item}")}), "/steps/a/input", "`item` is there only inside a map"),
        (a_document({"a": a_step(input={"k": "${steps.x.output}"})}), "/steps/a/input/k", "there is no step `x`"),
        (a_document({"a": a_step(input="${steps.a.output}")}), "/steps/a/input", "can't refer to itself"),
        (
            a_document({"a": a_step(), "b": a_step(when="${steps.a.status}")}),
            "/steps/b/when",
            "`a` is not upstream of `b`",
        ),
        (a_document(output=["${steps.x.output}"]), "/output/0", "there is no step `x`"),
        (a_document({"a": a_step(retry=3)}), "/steps/a/retry", "not a number"),
        (a_document({"a": a_step(retry={"attempts": 3})}), "/steps/a/retry/attempts", "did you mean `max_attempts`?"),
        (a_document({"a": a_step(retry={"max_attempts": 0})}), "/steps/a/retry/max_attempts", "1 to 100"),
        (a_document({"a": a_step(retry={"max_attempts": True})}), "/steps/a/retry/max_attempts", "1 to 100"),
        (a_document({"a": a_step(retry={"max_attempts": 2.5})}), "/steps/a/retry/max_attempts", "whole number"),
        (a_document({"a": a_step(retry={"factor": 0.5})}), "/steps/a/retry/factor", "1 to 100"),
        (a_document({"a": a_step(retry={"backoff": "0s"})}), "/steps/a/retry/backoff", "at least 1ms"),
        (
            a_document({"a": a_step(retry={"backoff": "9s", "max_backoff": "3s"})}),
            "/steps/a/retry/max_backoff",
            "less than",
        ),
        (a_document({"a": a_step(retry={"jitter": "some"})}), "/steps/a/retry/jitter", "full, none"),
        ([], "", "a workflow is an object, not a list"),
        (None, "", "not null"),
        (a_document(output=float("nan")), "", "not JSON"),
        (a_document(output="x" * 2_000_000), "", "the limit is 2,000,000"),
    ],
)
def test_a_problem_is_told_with_its_place_in_words(document: Any, pointer: str, said: str) -> None:
    assert said in problems(document)[pointer]


def test_all_problems_are_told_at_once() -> None:
    document = {
        "name": "Bad",
        "class": "huge",
        "timeout": 5,
        "steps": {
            "a": {"task": "nope", "needs": ["gone"], "input": "${x}", "when": "yes", "retry": {"factor": 0}},
            "b": {"task": "core.echo", "map": {}, "input": "${steps.c.output}"},
            "c": 5,
        },
        "output": ["${steps.d.output}", "${input."],
        "extra": 1,
    }
    assert set(problems(document)) == {
        "/name",
        "/class",
        "/timeout",
        "/steps/a/task",
        "/steps/a/needs/0",
        "/steps/a/input",
        "/steps/a/when",
        "/steps/a/retry/factor",
        "/steps/b",
        "/steps/b/map",
        "/steps/b/input",
        "/steps/c",
        "/output/0",
        "/output/1",
        "/extra",
    }


def test_the_document_must_be_called_as_it_was_sent() -> None:
    assert "called `flow`, but was sent to `other`" in problems(a_document(), "other")["/name"]


def test_a_reference_may_reach_over_several_steps_and_the_output_may_refer_to_any() -> None:
    steps = {"a": a_step(), "b": a_step(needs=["a"]), "c": a_step(needs=["b"], input="${steps.a.output}")}
    assert checked(a_document(steps, output=["${steps.a.error}", "${steps.b.status}"]))


def test_each_cycle_is_told_with_the_steps_on_it() -> None:
    steps = {
        "start": a_step(),
        "a": a_step(needs=["start", "c"]),
        "b": a_step(needs=["a"]),
        "c": a_step(needs=["b"]),
        "behind": a_step(needs=["c"], input="${steps.start.output}"),
        "x": a_step(needs=["y"]),
        "y": a_step(needs=["x"]),
    }
    assert problems(a_document(steps)) == {
        "/steps/a/needs": "a cycle of needs: a → c → b → a",
        "/steps/x/needs": "a cycle of needs: x → y → x",
    }


def test_a_document_nested_without_end_is_one_problem() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested deeper" in problems(a_document(output=deep))[""]


def test_too_many_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_STEPS", 2)
    assert "3 steps; the limit is 2" in problems(a_document({name: a_step() for name in "abc"}))["/steps"]


def test_a_document_full_of_problems_gets_an_answer_of_bounded_size() -> None:
    long_name = "x" * 50_000
    with pytest.raises(InvalidDocument) as caught:
        checked(a_document({long_name: a_step(needs=[0] * 900)}))
    assert len(str(caught.value)) < 1_000_000
    told = problems(a_document({"a": a_step(needs=[0] * 100_000)}))
    assert told[""] == "and 99,000 more problems"
    assert len(told) == 1_001


# --- any document -----------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "a", "5s", "${input.a}", "${"])
words = st.sampled_from(
    [*"ab", "name", "steps", "task", "needs", "retry", "when", "input", "class", "output", "timeout"]
)
any_json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=20
)


@given(whole=any_json, steps=any_json, step=any_json)
@settings(max_examples=300)
def test_any_json_is_a_workflow_or_has_problems(whole: Any, steps: Any, step: Any) -> None:
    for document in (whole, a_document(steps), a_document({"a": step})):
        # Anything but InvalidDocument would fly.
        with contextlib.suppress(InvalidDocument):
            assert checked(document).steps


@given(seed=st.integers(0, 2**32), count=st.integers(2, 30))
@settings(max_examples=100)
def test_any_acyclic_graph_is_taken_and_one_edge_back_is_told_as_a_cycle(seed: int, count: int) -> None:
    chance = random.Random(seed)
    names = [f"s{i}" for i in range(count)]
    needs = {name: chance.sample(names[:i], chance.randint(0, min(i, 3))) for i, name in enumerate(names)}
    needs[names[-1]] = [*needs[names[-1]], names[0]] if names[0] not in needs[names[-1]] else needs[names[-1]]
    shuffled = chance.sample(names, count)
    document = a_document({name: a_step(needs=needs[name]) for name in shuffled})
    workflow = checked(document)
    assert list(workflow.steps) == shuffled

    document["steps"][names[0]]["needs"] = [names[-1]]
    [(pointer, told)] = problems(document).items()
    cycle = told.removeprefix("a cycle of needs: ").split(" → ")
    assert pointer == f"/steps/{cycle[0]}/needs"
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    assert all(after in document["steps"][before]["needs"] for before, after in itertools.pairwise(cycle))


# --- what we print ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_can_be_registered(path: Path) -> None:
    workflow = checked(yaml.safe_load(path.read_text(encoding="utf-8")), path.stem)
    assert workflow.output is not None


def printed_documents() -> list[Any]:
    text = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]
    return [block for block in blocks if isinstance(block, dict) and "steps" in block]


@pytest.mark.parametrize("document", printed_documents(), ids=lambda document: str(document["name"]))
def test_every_document_printed_in_the_docs_can_be_registered(document: Any) -> None:
    assert checked(document)


def test_the_docs_print_an_example_of_every_key() -> None:
    printed = printed_documents()
    steps = [step for document in printed for step in document["steps"].values()]
    assert {key for document in printed for key in document} == {*documents.DOCUMENT_KEYS}
    assert {key for step in steps for key in step} == {*STEP_KEYS}
    assert {key for step in steps for key in step.get("map", {})} == {*MAP_KEYS}
    assert {key for step in steps for key in step.get("fail", {})} == {*FAIL_KEYS}
    assert {key for step in steps for key in step.get("retry", {})} == {*RETRY_KEYS}
