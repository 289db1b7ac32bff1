"""The kinds of steps there are: the one list of them."""

from __future__ import annotations

from collections.abc import Mapping

from fanfold.engine.errors import InvalidDocument, ValidationIssue
from fanfold.engine.language.fail_step import FAIL, FailStep
from fanfold.engine.language.map_step import MAP, MapStep
from fanfold.engine.language.step import StepKind
from fanfold.engine.language.task_step import TASK, TaskStep
from fanfold.engine.language.wait_step import WAIT, WaitStep
from fanfold.engine.payload import Json

Step = TaskStep | MapStep | WaitStep | FailStep

KINDS: tuple[StepKind[Step], ...] = (TASK, MAP, WAIT, FAIL)
"""In the order in which sentences name them."""

STEP_KEYS = (*(kind.key for kind in KINDS), "needs", "join", "when", "on_failure", "input", "timeout", "retry")


def kinds_of(step: Mapping[str, Json]) -> tuple[StepKind[Step], ...]:
    """The kinds that a step of a document names; exactly one if it is sound."""
    return tuple(kind for kind in KINDS if kind.key in step)


def not_one_kind(step: Mapping[str, Json]) -> str:
    """The sentence for a step that names no kind, or more than one."""
    *first, last = (f"`{kind.key}`" for kind in KINDS)
    given = " and ".join(f"`{kind.key}`" for kind in kinds_of(step)) or "none"
    return f"a step has exactly one of {', '.join(first)} and {last}; this one has {given}"


def step_of(name: str, source: Mapping[str, Json], *, max_step_seconds: float) -> Step:
    """A step of a checked document. Raises `InvalidDocument` for one that was never checked."""
    kinds = kinds_of(source)
    if len(kinds) != 1:
        raise InvalidDocument((ValidationIssue(pointer=f"/steps/{name}", detail=not_one_kind(source)),))
    return kinds[0].parse(name, source, max_step_seconds)
