"""A task step's life in the record: attempts at one call."""

from __future__ import annotations

from dataclasses import dataclass

from fanfold.engine.language.task_step import TaskStep
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.payload import Loaded
from fanfold.engine.record.run import Failure
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.events import AttemptFailed, AttemptNotBegun, AttemptSucceeded, Emitted, StepEvent
from fanfold.engine.rules.kinds.calling import CallingRules


@dataclass(slots=True)
class TaskRules(CallingRules):
    """The rules of a step that calls a task."""

    step: TaskStep

    def start(self, draft: Draft, loaded: Loaded) -> bool:
        """Record an attempt as started, with its input."""
        if not self.has_time(draft):
            return self.fails_for_time(draft)
        try:
            value = draft.evaluate(self.step.input, loaded)
        except ExpressionError as error:
            draft.fail_step(self.step, Failure(type=error.failure_type, message=str(error)))
            return True
        self.start_attempt(draft, value)
        return True

    def on_event(self, draft: Draft, event: StepEvent) -> None:
        """Attempts are all that happens to the step."""
        if isinstance(event, AttemptSucceeded | AttemptFailed | AttemptNotBegun | Emitted):
            self.on_attempt(draft, event)
