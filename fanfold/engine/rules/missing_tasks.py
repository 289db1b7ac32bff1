"""Steps whose task this worker can't call: they are put off, for a bounded time, and nothing of it counts as a failure.

A deployment may lack a task, or be unable to import it, and the next one has it again. What had waited for days must
not end because of that.
"""

from __future__ import annotations

from datetime import timedelta

from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.task_step import TaskStep
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import StepStatus, failure_view
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.engine_limits import MAX_DELAY

FIRST_PAUSE = timedelta(minutes=1)
"""A step is looked at again after this, then after about twice as long each time, up to 15 minutes."""


def put_off(draft: Draft, step: TaskStep | MapStep) -> None:
    """The step's turn has come, and its task can't be called here: it waits, or has waited long enough and fails."""
    state, limits = draft.steps[step.name], draft.limits
    failure = limits.missing[step.task]
    since = state.missing_since or draft.now
    waited = draft.now - since
    if waited >= limits.missing_for:
        draft.step(step.name, missing_since=None)
        draft.fail_step(step, failure)
        return
    pause = min(max(waited, FIRST_PAUSE), MAX_DELAY, limits.missing_for - waited)
    draft.step(step.name, status=StepStatus.RETRYING, missing_since=since, due_at=draft.now + pause, error=failure)
    if state.missing_since is None:
        draft.note(
            EventType.STEP_RETRY_SCHEDULED,
            step=step.name,
            attempt=state.attempts or None,
            data={"error": failure_view(failure), "delay_seconds": pause.total_seconds()},
        )
