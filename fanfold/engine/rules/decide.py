"""The heart: given a run, what happened, and the time, what is the run's next record and what is to be done.

Pure. `decide` may be called again with the same arguments at no cost and with the same result; the
shell commits the record it returns under the version it was given, and performs the effects after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from fanfold.engine.errors import IllegalTransition, PayloadLost
from fanfold.engine.language.budget import Allowance
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded, resolve
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Reason, Run, Status
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
    Happening,
    MapCompletionSignalled,
    MapEnded,
    MapStillRunning,
    MapThrottled,
    MapYielded,
    OperatorRequest,
    QueueDeadlineChecked,
    RecordReloaded,
    RecordTooLarge,
    Renewed,
    StopRequested,
    Undecidable,
)
from fanfold.engine.rules.fork import taken_over
from fanfold.engine.rules.interruption import break_off, interrupt_all
from fanfold.engine.rules.kinds.table import break_off as break_off_step
from fanfold.engine.rules.kinds.table import rules_of
from fanfold.engine.rules.lease import abandoned
from fanfold.engine.rules.operations import carry_out
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
    `IllegalTransition` for a claim of a run that can't be claimed.
    """
    allowance = Allowance(clock, max_read_bytes=limits.max_read_bytes)
    draft = Draft(run, workflow, now, limits, allowance, break_off=break_off_step)
    draft.goes_on = goes_on
    for event in events:
        if isinstance(event, OperatorRequest):
            carry_out(draft, event, loaded or {})
        elif run.terminal:
            break
        else:
            _happened(draft, event)
    if not draft.by_operator:
        _go_on(draft, loaded or {})
    record = draft.next_record()
    return Decision(run=record, effects=tuple(draft.effects), changed=record is not run, more=draft.more)


def _happened(draft: Draft, event: Happening) -> None:
    """What an event alone means for the record."""
    match event:
        case (
            AttemptSucceeded()
            | AttemptFailed()
            | AttemptNotBegun()
            | Emitted()
            | MapEnded()
            | MapStillRunning()
            | MapThrottled()
            | MapCompletionSignalled()
            | MapYielded()
        ):
            if event.step in draft.steps:
                rules_of(draft.workflow.steps[event.step]).on_event(draft, event)
        case Claimed():
            _claimed(draft, event)
        case RecordReloaded():
            draft.look_everywhere = True
        case Renewed():
            draft.renewed |= _held(draft)
        case StopRequested():
            if _held(draft):
                break_off(draft)
        case RecordTooLarge():
            if _held(draft):
                draft.fail(Reason.STEP_FAILED, Failure(type="record_too_large", message=event.detail))
        case Undecidable():
            _give_up(draft, event)
        case QueueDeadlineChecked():
            if draft.status is Status.QUEUED:
                _judge_queue_deadlines(draft, draft.now - QUEUE_GRACE)
        case _:
            assert_never(event)


def _go_on(draft: Draft, loaded: Loaded) -> None:
    """What follows for a held run from what happened."""
    if draft.status is Status.RUNNING and draft.cancel_requested:
        draft.cancel()
    elif draft.status is Status.RUNNING and draft.goes_on:
        try:
            _take_over(draft, loaded)
        except PayloadLost as error:
            message = f"what the fork takes over of another run: {error}"
            draft.fail(Reason.STEP_FAILED, Failure(type="input_unavailable", message=message))
            return
        advance(draft, loaded)
    elif draft.status is Status.PAUSED and draft.lease_until is not None and not draft.at_work:
        # Its last attempt has ended: the holder lets it go.
        draft.lease_until, draft.crashes = None, 0


def _take_over(draft: Draft, loaded: Loaded) -> None:
    """A fork of which nothing has begun has what it takes over of another run's steps."""
    run = draft.run
    if run.origin is not None and not draft.steps and not run.sealed.steps:
        draft.reset(taken_over(resolve(run.origin.checkpoints, loaded), draft.workflow))


def _held(draft: Draft) -> bool:
    """Whether somebody may be working on the run: also a paused one, until its attempts have ended."""
    return draft.status is Status.RUNNING or (draft.status is Status.PAUSED and draft.at_work)


def _claimed(draft: Draft, event: Claimed) -> None:
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
    draft.change_status(Status.RUNNING)
    draft.owner, draft.epoch = event.owner, run.epoch + 1
    draft.note(EventType.RUN_CLAIMED, data={"epoch": draft.epoch, "worker": event.worker})
    if run.started_at is None:
        draft.started_at = draft.now
    if crashed and not run.cancel_requested:
        interrupt_all(draft)


def _give_up(draft: Draft, event: Undecidable) -> None:
    """A run that no worker can decide ends as what it is, instead of holding its slot until its timeout."""
    if draft.run.owner != event.owner:
        _check_claimable(draft)
    draft.fail(Reason.STEP_FAILED, Failure(type="internal", message=event.detail))


def _check_claimable(draft: Draft) -> None:
    if draft.status is Status.RUNNING and not abandoned(draft.run, draft.now, draft.limits):
        raise IllegalTransition("a run under a valid lease can't be claimed")


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
