"""What a holder's death means: what it had started is interrupted, and too many deaths end the run (R7)."""

from __future__ import annotations

from functions.engine.draft import Draft
from functions.engine.journal import EventType
from functions.engine.maps import open_elsewhere
from functions.engine.run import Fault, Reason, StepState, StepStatus
from functions.engine.workflow import OnInterrupt, Workflow


def interrupt_all(draft: Draft, workflow: Workflow) -> None:
    """The last holder died: count it, and interrupt every running attempt. May end the run."""
    limit = draft.terms.max_crashes
    draft.set(crashes=draft.run.crashes + 1)
    worn_out = [name for name, state in draft.steps.items() if _interrupt(draft, workflow, name, state) >= limit]
    if draft.ended:
        return
    for name in open_elsewhere(draft.run):
        # Its end may have been told to the one that died.
        draft.step(name, due_at=draft.now)
    if worn_out or draft.get("crashes") >= limit:
        what = f"step {worn_out[0]!r} was interrupted {limit} times" if worn_out else f"{limit} workers died in a row"
        draft.fail(Reason.ATTEMPTS_EXHAUSTED, Fault(type="attempts_exhausted", message=what))


def _interrupt(draft: Draft, workflow: Workflow, name: str, state: StepState) -> int:
    """Mark a running step's attempt as interrupted; returns how often the step was (0: it did not run)."""
    if state.status is not StepStatus.RUNNING or draft.ended:
        return 0
    count = state.interruptions + 1
    draft.step(name, status=StepStatus.RETRYING, due_at=draft.now, interruptions=count)
    draft.note(EventType.STEP_INTERRUPTED, step=name, attempt=state.attempts)
    if workflow.steps[name].retry.on_interrupt is OnInterrupt.FAIL:
        fault = Fault(type="interrupted", message="the worker died during the attempt, and on_interrupt is fail")
        draft.fail_step(workflow.steps[name], fault)
    return count
