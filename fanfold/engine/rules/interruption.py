"""A holder's early end (R7): one that died is counted, and too many end the run; one that must stop lets go."""

from __future__ import annotations

from fanfold.engine.language.calling import OnInterrupt
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Reason, Status, StepState, StepStatus
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import SendWake
from fanfold.engine.rules.kinds.map_step import open_distributed_maps


def interrupt_all(draft: Draft) -> None:
    """The last holder died: count it, and interrupt every running attempt. May end the run."""
    limit = draft.limits.max_crashes
    draft.crashes = draft.run.crashes + 1
    worn_out = [name for name, state in draft.steps.items() if _interrupt(draft, name, state) >= limit]
    if draft.ended:
        return
    for name in open_distributed_maps(draft.run):
        # Its end may have been told to the one that died.
        draft.step(name, due_at=draft.now)
    if worn_out or draft.crashes >= limit:
        what = f"step {worn_out[0]!r} was interrupted {limit} times" if worn_out else f"{limit} workers died in a row"
        draft.fail(Reason.ATTEMPTS_EXHAUSTED, Failure(type="attempts_exhausted", message=what))


def break_off(draft: Draft) -> None:
    """The holder had to stop, and what ran has been broken off: it begins again at once, and none of it counts.

    A step that must not be done twice fails, as after a crash. May end the run.
    """
    for name, state in list(draft.steps.items()):
        if state.status is StepStatus.RUNNING and not draft.ended:
            draft.step(name, status=StepStatus.RETRYING, due_at=draft.paused_at or draft.now)
            draft.note(EventType.STEP_INTERRUPTED, step=name, attempt=state.attempts, data={"counted": False})
            _judge(draft, name, "the worker had to stop during the attempt, and on_interrupt is fail")
    draft.goes_on = False
    if draft.ended:
        return
    if draft.cancel_requested:
        draft.cancel()
    elif draft.status is Status.PAUSED:
        draft.lease_until = None
    else:
        draft.change_status(Status.WAITING, due_at=draft.runnable_now)
        draft.note(EventType.RUN_SUSPENDED, data={"for": "hand_over"})
        draft.effects.append(SendWake(at=draft.now))


def _interrupt(draft: Draft, name: str, state: StepState) -> int:
    """Mark a running step's attempt as interrupted; returns how often the step was (0: it did not run)."""
    if state.status is not StepStatus.RUNNING or draft.ended:
        return 0
    count = state.interruptions + 1
    draft.step(name, status=StepStatus.RETRYING, due_at=draft.now, interruptions=count)
    draft.note(EventType.STEP_INTERRUPTED, step=name, attempt=state.attempts)
    _judge(draft, name, "the worker died during the attempt, and on_interrupt is fail")
    return count


def _judge(draft: Draft, name: str, message: str) -> None:
    """A step whose attempt was cut off fails if it must not be done twice."""
    step = draft.workflow.calling(name)
    if step.retry.on_interrupt is OnInterrupt.FAIL:
        draft.fail_step(step, Failure(type="interrupted", message=message))
