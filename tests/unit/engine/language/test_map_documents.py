"""What a document may say of a map, and what it is told when it says something else."""

from __future__ import annotations

from typing import Any

import pytest

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language.document_check import check
from fanfold.engine.language.map_step import MapStep, Tolerance
from fanfold.engine.language.maps import Via


def step(**given: Any) -> dict[str, Any]:
    mapped = {"over": "${input.files}", "task": "core.echo"} | given
    return {"map": {key: value for key, value in mapped.items() if value is not ...}}


def read(of_step: dict[str, Any]) -> MapStep:
    document = {"name": "flow", "steps": {"first": {"task": "core.echo"}, "each": {"needs": ["first"], **of_step}}}
    each = check(document, name=None, tasks={"core.echo"}, classes={"model": 840}).steps["each"]
    assert isinstance(each, MapStep)
    return each


def problems(of_step: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidDocument) as invalid:
        read(of_step)
    return {problem.pointer.removeprefix("/steps/each"): problem.detail for problem in invalid.value.problems}


def test_a_map_says_what_it_goes_over_with_which_task_and_what_it_bears() -> None:
    read_step = read(
        step(
            over="${steps.first.output.files}",
            input={"name": "${item}", "at": "${index}"},
            max_concurrency=20,
            tolerate={"percent": 5},
            via="stepfunctions",
        )
        | {"timeout": "30s", "retry": {"max_attempts": 2}}
    )
    assert (read_step.task, read_step.timeout_seconds, read_step.retry.max_attempts) == ("core.echo", 30, 2)
    assert (read_step.max_concurrency, read_step.via) == (20, Via.STEP_FUNCTIONS)
    assert read_step.tolerate == Tolerance(percent=5)
    assert read_step.reads == {"first"}


def test_what_a_map_does_not_say_has_a_default() -> None:
    read_step = read(step())
    assert (read_step.max_concurrency, read_step.via, read_step.tolerate) == (40, Via.AUTO, Tolerance())
    assert read_step.input.source == "${item}"
    assert read_step.timeout_seconds == 240


def test_a_list_in_the_document_can_be_gone_over() -> None:
    assert read(step(over=["a", "${input.b}"])).over.source == ["a", "${input.b}"]


@pytest.mark.parametrize(
    ("of_step", "pointer", "said"),
    [
        ({"map": 3}, "/map", "an object"),
        (step(over=...), "/map", "`over` is missing"),
        (step(over=7), "/map/over", "a list"),
        (step(over="a ${input.b}"), "/map/over", "exactly one expression"),
        (step(over="${item}"), "/map/over", "only inside a map"),
        (step(over="${steps.other.output}"), "/map/over", "no step `other`"),
        (step(task=...), "/map", "`task` is missing"),
        (step(task="core.ecko"), "/map/task", "did you mean `core.echo`"),
        (step(input="${index +}"), "/map/input", ""),
        (step(input="${steps.each.output}"), "/map/input", "itself"),
        (step(max_concurrency=0), "/map/max_concurrency", "1 to 1,000"),
        (step(max_concurrency=True), "/map/max_concurrency", "1 to 1,000"),
        (step(max_concurrency=1_001), "/map/max_concurrency", "1 to 1,000"),
        (step(tolerate=5), "/map/tolerate", "an object"),
        (step(tolerate={}), "/map/tolerate", "exactly one"),
        (step(tolerate={"count": 1, "percent": 1}), "/map/tolerate", "exactly one"),
        (step(tolerate={"count": -1}), "/map/tolerate/count", "from 0"),
        (step(tolerate={"percent": 101}), "/map/tolerate/percent", "0 to 100"),
        (step(via="lambda"), "/map/via", "auto, inline, stepfunctions"),
        (step(concurrency=3), "/map/concurrency", "unknown key"),
        (step() | {"input": {}}, "/input", "inside `map`"),
        (step() | {"task": "core.echo"}, "", "exactly one"),
        (step() | {"timeout": "20m"}, "/timeout", "longest step"),
    ],
)
def test_what_is_wrong_with_a_map_is_told_with_its_place(of_step: dict[str, Any], pointer: str, said: str) -> None:
    found = problems(of_step)
    assert pointer in found
    assert said in found[pointer]


def test_item_and_index_are_there_only_inside_a_map() -> None:
    assert "only inside a map" in problems({"task": "core.echo", "input": "${item}"})["/input"]
