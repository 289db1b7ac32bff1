"""A fail step's life in the record: at its turn it fails, and its run with it."""

from __future__ import annotations

from dataclasses import dataclass

from fanfold.engine.language.budget import Refused
from fanfold.engine.language.fail_step import FailStep
from fanfold.engine.language.template_nodes import as_text
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.payload import Loaded
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Reason, StepStatus, failure_view
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.events import StepEvent
from fanfold.engine.rules.kinds.step_rules import StepRules

MAX_MESSAGE = 1_000
"""Longest message, in characters, as of every failure."""


@dataclass(slots=True)
class FailRules(StepRules):
    """The rules of a step that ends its run as failed."""

    step: FailStep

    def begin(self, draft: Draft, loaded: Loaded) -> bool:
        """End the run with the step's own error, as it is."""
        step = self.step
        try:
            failure = Failure(type=step.type, message=self._message(draft, loaded)[:MAX_MESSAGE])
        except ExpressionError as error:
            draft.fail_step(step, Failure(type=error.failure_type, message=str(error)))
            return True
        attempt = draft.steps[step.name].attempts + 1
        draft.step(step.name, attempts=attempt, started_at=draft.now)
        draft.note(EventType.STEP_STARTED, step=step.name, attempt=attempt)
        data = {"error": failure_view(failure)}
        draft.settle(step.name, StepStatus.FAILED, EventType.STEP_FAILED, error=failure, data=data)
        draft.fail(Reason.STEP_FAILED, failure)
        return True

    def _message(self, draft: Draft, loaded: Loaded) -> str:
        """The message as a text, whatever its expression gives. Raises `ExpressionError`."""
        value = draft.evaluate(self.step.message, loaded)
        try:
            return as_text(value, draft.allowance.step)
        except Refused as error:
            raise ExpressionError(str(error)) from error

    def on_event(self, draft: Draft, event: StepEvent) -> None:
        """The step is over at its turn: nothing can happen to it."""
