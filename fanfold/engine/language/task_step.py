"""A step that calls a task once: `task: NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fanfold.engine.language.calling import CallingStep, call_of
from fanfold.engine.language.step import StepKind, fields_of
from fanfold.engine.language.templates import Slot, Template
from fanfold.engine.payload import Json

if TYPE_CHECKING:
    from fanfold.engine.language.step_checks import StepChecks


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep(CallingStep):
    """A step that calls a task; its output is the task's."""

    @property
    def own_templates(self) -> tuple[Template, ...]:
        """The task's input."""
        return (self.input,)


def _check_task(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> None:
    checks.task(step["task"], f"{pointer}/task")


def _check(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> list[Slot]:
    """What a step says of its call stands beside `task`, and is checked for steps of every kind."""
    return []


def _parse(name: str, source: Mapping[str, Json], max_step_seconds: float) -> TaskStep:
    call = call_of(source, task=source["task"], input=source.get("input", {}), longest_seconds=max_step_seconds)
    return TaskStep(**fields_of(name, source), **call)


TASK = StepKind(key="task", check=_check, check_task=_check_task, parse=_parse)
