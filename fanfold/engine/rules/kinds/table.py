"""Which rules a step goes by: the one place of the rules that knows all kinds."""

from __future__ import annotations

from fanfold.engine.language.fail_step import FailStep
from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.step_kinds import Step
from fanfold.engine.language.task_step import TaskStep
from fanfold.engine.language.wait_step import WaitStep
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.kinds.fail_step import FailRules
from fanfold.engine.rules.kinds.map_step import MapRules
from fanfold.engine.rules.kinds.step_rules import StepRules
from fanfold.engine.rules.kinds.task_step import TaskRules
from fanfold.engine.rules.kinds.wait_step import WaitRules


def rules_of(step: Step) -> StepRules:
    """The rules of the step's kind. A kind that is forgotten here is a type error."""
    match step:
        case TaskStep():
            return TaskRules(step)
        case MapStep():
            return MapRules(step)
        case WaitStep():
            return WaitRules(step)
        case FailStep():
            return FailRules(step)


def break_off(draft: Draft, step: Step) -> None:
    """The run ends, and the step has not."""
    rules_of(step).cancel(draft)
