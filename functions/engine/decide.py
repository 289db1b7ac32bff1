"""The heart: given a run, what happened, and the time, what is the run's next record and what is to be done.

Pure. `decide` may be called again with the same arguments at no cost and with the same result; the
shell commits the record it returns under the version it was given, and performs the effects after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from functions.engine.draft import Draft
from functions.engine.effects import Effect
from functions.engine.errors import IllegalMove
from functions.engine.events import AttemptFailed, AttemptSucceeded, Claimed, Emitted, Event, Overgrown, Renewed, Swept
from functions.engine.journal import EventType
from functions.engine.lease import abandoned
from functions.engine.progress import advance
from functions.engine.retry import delay
from functions.engine.run import Fault, Reason, Run, Status, StepState, StepStatus, fault_view
from functions.engine.terms import Terms
from functions.engine.values import Loaded
from functions.engine.workflow import OnInterrupt, Workflow

QUEUE_GRACE = timedelta(minutes=1)
"""The sweeper settles a queued run's deadline only this long after it passed: a claim judges it first (R14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next record (the same object when nothing changed) and the effects that follow its commit."""

    run: Run
    effects: tuple[Effect, ...]
    changed: bool


def decide(
    run: Run,
    workflow: Workflow,
    events: Sequence[Event],
    now: datetime,
    *,
    terms: Terms,
    loaded: Loaded | None = None,
) -> Decision:
    """The next record of a run.

    Events about what the record no longer waits for change nothing, so every event may arrive
    twice. Raises `ValuesMissing` when an expression needs a payload that is not in `loaded`, and
    `IllegalMove` for a claim of a run that can't be claimed.
    """
    draft = Draft(run, now, terms)
    for event in events:
        if run.terminal:
            break
        match event:
            case Claimed():
                _claimed(draft, workflow, event)
            case AttemptSucceeded():
                if _current(draft, event.step, event.attempt):
                    draft.settle(event.step, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=event.output)
            case AttemptFailed():
                if _current(draft, event.step, event.attempt):
                    _attempt_failed(draft, workflow, event)
            case Emitted():
                if _current(draft, event.step, event.attempt):
                    draft.note(
                        EventType.STEP_EMITTED, step=event.step, attempt=event.attempt, data={"data": event.data}
                    )
            case Renewed():
                draft.changed |= draft.status is Status.RUNNING
            case Overgrown():
                if draft.status is Status.RUNNING:
                    draft.fail(Reason.STEP_FAILED, Fault(type="record_too_large", message=event.detail))
            case Swept():
                if draft.status is Status.QUEUED:
                    _judge_queue_deadlines(draft, draft.now - QUEUE_GRACE)
    if draft.status is Status.RUNNING:
        advance(draft, workflow, loaded or {})
    return Decision(run=draft.sealed(), effects=tuple(draft.effects), changed=draft.changed)


def _current(draft: Draft, step: str, attempt: int) -> bool:
    """Whether the record still waits for this attempt's end."""
    state = draft.steps.get(step)
    return (
        draft.status is Status.RUNNING
        and state is not None
        and state.status is StepStatus.RUNNING
        and state.attempts == attempt
    )


def _claimed(draft: Draft, workflow: Workflow, event: Claimed) -> None:
    """R2, R7: a queued, due or abandoned run gets a new owner."""
    run = draft.run
    if run.owner == event.owner:
        return
    crashed = abandoned(run, draft.now, draft.terms)
    if draft.status is Status.QUEUED:
        _judge_queue_deadlines(draft, draft.now)
        if draft.ended:
            return
        draft.set(started_at=draft.now)
        for name in workflow.steps:
            draft.steps.setdefault(name, StepState())
    elif draft.status is Status.RUNNING and not crashed:
        raise IllegalMove("a run under a valid lease can't be claimed")
    draft.move(Status.RUNNING, owner=event.owner, epoch=run.epoch + 1, due_at=None)
    draft.note(EventType.RUN_CLAIMED, data={"epoch": run.epoch + 1, "worker": event.worker})
    if crashed:
        _crashed(draft, workflow)


def _judge_queue_deadlines(draft: Draft, by: datetime) -> None:
    """A run that was not started in time fails without being started."""
    run = draft.run
    if run.queue_deadline is not None and run.queue_deadline <= by:
        draft.fail(Reason.EXPIRED_IN_QUEUE, Fault(type="expired_in_queue", message="not started within queue_timeout"))
    elif run.deadline <= by:
        draft.fail(Reason.TIMED_OUT, Fault(type="timed_out", message="the run's timeout passed before it was started"))


def _crashed(draft: Draft, workflow: Workflow) -> None:
    """R7: the last holder died. What it had started is interrupted; too many times, and the run ends."""
    limit = draft.terms.max_crashes
    draft.set(crashes=draft.run.crashes + 1)
    worn_out = [name for name, state in draft.steps.items() if _interrupt(draft, workflow, name, state) >= limit]
    if draft.ended:
        return
    if worn_out or draft.get("crashes") >= limit:
        what = f"step {worn_out[0]!r} was interrupted {limit} times" if worn_out else f"{limit} workers died in a row"
        draft.fail(Reason.ATTEMPTS_EXHAUSTED, Fault(type="attempts_exhausted", message=what))


def _interrupt(draft: Draft, workflow: Workflow, name: str, state: StepState) -> int:
    """Mark a running step's attempt as interrupted; returns how often the step was (0: it did not run)."""
    if state.status is not StepStatus.RUNNING or draft.ended:
        return 0
    count = state.interruptions + 1
    draft.step(name, status=StepStatus.RETRYING, retry_at=draft.now, interruptions=count)
    draft.note(EventType.STEP_INTERRUPTED, step=name, attempt=state.attempts)
    if workflow.steps[name].retry.on_interrupt is OnInterrupt.FAIL:
        fault = Fault(type="interrupted", message="the worker died during the attempt, and on_interrupt is fail")
        draft.fail_step(workflow.steps[name], fault)
    return count


def _attempt_failed(draft: Draft, workflow: Workflow, event: AttemptFailed) -> None:
    state = draft.steps[event.step]
    policy = workflow.steps[event.step].retry
    failures = state.failures + 1
    if event.retryable and failures < policy.max_attempts:
        wait = delay(policy, failures=failures, chance=event.chance, after_seconds=event.after_seconds)
        draft.step(
            event.step,
            status=StepStatus.RETRYING,
            failures=failures,
            retry_at=draft.now + wait,
            error=event.fault,
        )
        draft.note(
            EventType.STEP_RETRY_SCHEDULED,
            step=event.step,
            attempt=event.attempt,
            data={"error": fault_view(event.fault), "delay_seconds": wait.total_seconds()},
        )
        return
    draft.step(event.step, failures=failures)
    draft.fail_step(workflow.steps[event.step], event.fault)
