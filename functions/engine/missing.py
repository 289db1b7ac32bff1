"""Steps whose task this worker can't call: they are put off, for a bounded time, and nothing of it counts as a failure.

A deployment may lack a task, or be unable to import it, and the next one has it again. What had waited for days must
not end because of that.
"""

from __future__ import annotations

from datetime import timedelta

from functions.engine.draft import Draft
from functions.engine.journal import EventType
from functions.engine.run import StepStatus, fault_view
from functions.engine.terms import MAX_DELAY
from functions.engine.workflow import Step

FIRST_PAUSE = timedelta(minutes=1)
"""A step is looked at again after this, then after about twice as long each time, up to 15 minutes."""


def put_off(draft: Draft, step: Step) -> None:
    """The step's turn has come, and its task can't be called here: it waits, or has waited long enough and fails."""
    state, terms = draft.steps[step.name], draft.terms
    fault = terms.missing[step.task]
    since = state.missing_since or draft.now
    waited = draft.now - since
    if waited >= terms.missing_for:
        draft.step(step.name, missing_since=None)
        draft.fail_step(step, fault)
        return
    pause = min(max(waited, FIRST_PAUSE), MAX_DELAY, terms.missing_for - waited)
    draft.step(step.name, status=StepStatus.RETRYING, missing_since=since, due_at=draft.now + pause, error=fault)
    if state.missing_since is None:
        draft.note(
            EventType.STEP_RETRY_SCHEDULED,
            step=step.name,
            attempt=state.attempts or None,
            data={"error": fault_view(fault), "delay_seconds": pause.total_seconds()},
        )
