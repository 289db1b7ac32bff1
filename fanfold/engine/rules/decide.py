"""The heart: given a run, what happened, and the time, what is the run's next record and what is to be done.

Pure. `decide` may be called again with the same arguments at no cost and with the same result; the
shell commits the record it returns under the version it was given, and performs the effects after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fanfold.engine.errors import IllegalMove, PayloadLost
from fanfold.engine.language.budget import Allowance
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded, resolve
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Reason, Run, Status, StepStatus, failure_view
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import Effect
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import (
    AttemptFailed,
    AttemptNotBegun,
    AttemptSucceeded,
    Claimed,
    Emitted,
    Event,
    MapCompletionSignalled,
    MapEnded,
    MapStillRunning,
    MapThrottled,
    MapYielded,
    Move,
    QueueDeadlineChecked,
    RecordReloaded,
    RecordTooLarge,
    Renewed,
    StopRequested,
    Undecidable,
)
from fanfold.engine.rules.fork import taken_over
from fanfold.engine.rules.interruption import break_off, interrupt_all
from fanfold.engine.rules.kinds.map_step import ask_again, end_map, looked_at, rang
from fanfold.engine.rules.lease import abandoned
from fanfold.engine.rules.operations import carry_out
from fanfold.engine.rules.retry import delay
from fanfold.engine.rules.scheduling import advance

QUEUE_GRACE = timedelta(minutes=1)
"""The sweeper settles a queued run's deadline only this long after it passed: a claim judges it first (R14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next record (the same object when nothing changed) and the effects that follow its commit.

    `more`: steps are left that can start. Decide again with `RecordReloaded` when this is committed.
    """

    run: Run
    effects: tuple[Effect, ...]
    changed: bool
    more: bool = False


def decide(
    run: Run,
    workflow: Workflow,
    events: Sequence[Event],
    now: datetime,
    *,
    limits: EngineLimits,
    loaded: Loaded | None = None,
    clock: Callable[[], float] | None = None,
    goes_on: bool = True,
) -> Decision:
    """The next record of a run.

    Events about what the record no longer waits for change nothing, so every event may arrive
    twice. What expressions may cost is counted; `clock`, in seconds, is the last resort against what the counts do not
    see. Without `goes_on` the record tells what the events say and nothing that follows from it: no expression is
    evaluated and nothing starts, so that this decision takes little memory and time whatever the run is; only a
    cancel that was asked for is carried out. Who holds the run has to decide what follows, with `RecordReloaded`.

    Raises `ValuesMissing` when an expression needs a payload that is not in `loaded`, and
    `IllegalMove` for a claim of a run that can't be claimed.
    """
    draft = Draft(run, workflow, now, limits, Allowance(clock, max_read_bytes=limits.max_read_bytes))
    draft.goes_on = goes_on
    for event in events:
        if isinstance(event, Move):
            carry_out(draft, workflow, event, loaded or {})
            continue
        if run.terminal:
            break
        match event:
            case Claimed():
                _claimed(draft, workflow, event)
            case RecordReloaded():
                draft.look_everywhere = True
            case AttemptSucceeded():
                if _current(draft, event.step, event.attempt):
                    draft.settle(event.step, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=event.output)
            case AttemptFailed():
                # What fails while the run is being cancelled is cancelled with it, and not tried again.
                if _current(draft, event.step, event.attempt) and not run.cancel_requested:
                    _attempt_failed(draft, workflow, event)
            case Emitted():
                if _current(draft, event.step, event.attempt):
                    draft.note(
                        EventType.STEP_EMITTED, step=event.step, attempt=event.attempt, data={"data": event.data}
                    )
            case MapEnded():
                if _current(draft, event.step, event.attempt):
                    end_map(draft, workflow, event)
            case MapStillRunning():
                if _open_elsewhere(draft, event.step, event.attempt):
                    looked_at(draft, event)
            case MapThrottled():
                if _open_elsewhere(draft, event.step, event.attempt):
                    ask_again(draft, event)
            case MapCompletionSignalled():
                if _open_elsewhere(draft, event.step):
                    rang(draft, event.step)
            case MapYielded() | AttemptNotBegun():
                if _current(draft, event.step, event.attempt):
                    draft.step(event.step, status=StepStatus.RETRYING, due_at=draft.now)
            case Renewed():
                draft.changed |= _held(draft)
            case StopRequested():
                if _held(draft):
                    break_off(draft, workflow)
            case RecordTooLarge():
                if _held(draft):
                    draft.fail(Reason.STEP_FAILED, Failure(type="record_too_large", message=event.detail))
            case Undecidable():
                _give_up(draft, event)
            case QueueDeadlineChecked():
                if draft.status is Status.QUEUED:
                    _judge_queue_deadlines(draft, draft.now - QUEUE_GRACE)
    if not draft.by_operator:
        _go_on(draft, workflow, loaded or {})
    return Decision(run=draft.sealed(), effects=tuple(draft.effects), changed=draft.changed, more=draft.more)


def _go_on(draft: Draft, workflow: Workflow, loaded: Loaded) -> None:
    """What follows for a held run from what happened."""
    if draft.status is Status.RUNNING and draft.get("cancel_requested"):
        draft.cancel()
    elif draft.status is Status.RUNNING and draft.goes_on:
        try:
            _take_over(draft, workflow, loaded)
        except PayloadLost as error:
            message = f"what the fork takes over of another run: {error}"
            draft.fail(Reason.STEP_FAILED, Failure(type="input_unavailable", message=message))
            return
        advance(draft, workflow, loaded)
    elif draft.status is Status.PAUSED and draft.get("lease_until") is not None and not draft.at_work:
        # Its last attempt has ended: the holder lets it go.
        draft.set(lease_until=None, crashes=0)


def _take_over(draft: Draft, workflow: Workflow, loaded: Loaded) -> None:
    """A fork of which nothing has begun has what it takes over of another run's steps."""
    run = draft.run
    if run.origin is not None and not draft.steps and not run.sealed.steps:
        draft.reset(taken_over(resolve(run.origin.checkpoints, loaded), workflow))


def _held(draft: Draft) -> bool:
    """Whether somebody may be working on the run: also a paused one, until its attempts have ended."""
    return draft.status is Status.RUNNING or (draft.status is Status.PAUSED and draft.at_work)


def _current(draft: Draft, step: str, attempt: int) -> bool:
    """Whether the record still waits for this attempt's end."""
    state = draft.steps.get(step)
    return (
        draft.status in (Status.RUNNING, Status.PAUSED)
        and state is not None
        and (state.status is StepStatus.RUNNING or (state.status is StepStatus.WAITING and state.map is not None))
        and state.attempts == attempt
    )


def _open_elsewhere(draft: Draft, step: str, attempt: int | None = None) -> bool:
    """Whether the record waits for this map, which goes on elsewhere."""
    state = draft.steps.get(step)
    return (
        state is not None
        and state.status is StepStatus.WAITING
        and state.map is not None
        and attempt in (None, state.attempts)
    )


def _claimed(draft: Draft, workflow: Workflow, event: Claimed) -> None:
    """R2, R7: a queued, due or abandoned run gets a new owner."""
    run = draft.run
    if run.owner == event.owner:
        return
    crashed = abandoned(run, draft.now, draft.limits)
    if draft.status is Status.QUEUED:
        _judge_queue_deadlines(draft, draft.now)
        if draft.ended:
            return
    else:
        _check_claimable(draft)
    draft.move(Status.RUNNING, owner=event.owner, epoch=run.epoch + 1, due_at=None)
    draft.note(EventType.RUN_CLAIMED, data={"epoch": run.epoch + 1, "worker": event.worker})
    if run.started_at is None:
        draft.set(started_at=draft.now)
    if crashed and not run.cancel_requested:
        interrupt_all(draft, workflow)


def _give_up(draft: Draft, event: Undecidable) -> None:
    """A run that no worker can decide ends as what it is, instead of holding its slot until its timeout."""
    if draft.run.owner != event.owner:
        _check_claimable(draft)
    draft.fail(Reason.STEP_FAILED, Failure(type="internal", message=event.detail))


def _check_claimable(draft: Draft) -> None:
    if draft.status is Status.RUNNING and not abandoned(draft.run, draft.now, draft.limits):
        raise IllegalMove("a run under a valid lease can't be claimed")


def _judge_queue_deadlines(draft: Draft, by: datetime) -> None:
    """A run that was not started in time fails without being started."""
    run = draft.run
    if run.queue_deadline is not None and run.queue_deadline <= by:
        draft.fail(
            Reason.EXPIRED_IN_QUEUE, Failure(type="expired_in_queue", message="not started within queue_timeout")
        )
    elif run.deadline <= by:
        draft.fail(
            Reason.TIMED_OUT, Failure(type="timed_out", message="the run's timeout passed before it was started")
        )


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
            # While the run is paused time stands still; its resumption moves this on.
            due_at=(draft.get("paused_at") or draft.now) + wait,
            error=event.fault,
        )
        draft.note(
            EventType.STEP_RETRY_SCHEDULED,
            step=event.step,
            attempt=event.attempt,
            data={"error": failure_view(event.fault), "delay_seconds": wait.total_seconds()},
        )
        return
    draft.step(event.step, failures=failures)
    draft.fail_step(workflow.steps[event.step], event.fault)
