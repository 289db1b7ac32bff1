"""Operations on a run: cancel, pause, resume, signal, redrive. Each decides on the current record (R10).

No operation starts an attempt or changes the lease, because both belong to the holder. The holder, or the next one to
claim the run, continues from the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import assert_never

from fanfold.engine.errors import KeyReused
from fanfold.engine.language.step import OnFailure
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Json, Loaded, Value
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.operations import Operation, check_operation
from fanfold.engine.record.run import IdempotencyRecord, Run, Signal, Status, StepState, StepStatus
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import SendEnvelope, SendWake
from fanfold.engine.rules.events import (
    CancelAsked,
    Keyed,
    OperatorRequest,
    PauseAsked,
    RedriveAsked,
    ResumeAsked,
    Signalled,
)
from fanfold.engine.rules.interruption import interrupt_all
from fanfold.engine.rules.kinds.table import rules_of
from fanfold.engine.rules.kinds.wait_step import check_signal, open_waits
from fanfold.engine.rules.lease import held

MAX_RECEIPTS = 100
"""The most keyed operations that a run remembers; repeats come soon."""


def carry_out(draft: Draft, request: OperatorRequest, loaded: Loaded) -> None:
    """Carry out an operator's request; a repeated one changes nothing.

    Raises `WrongState`, `SignalsFull` or `KeyReused`.
    """
    draft.by_operator = True
    if replayed(draft.run, request) is not None:
        return
    match request:
        case CancelAsked():
            _cancel(draft, request)
        case PauseAsked():
            _pause(draft, request)
        case ResumeAsked():
            _resume(draft, request)
        case Signalled():
            _signal(draft, request)
        case RedriveAsked():
            _redrive(draft, request, loaded)
        case _:
            assert_never(request)


def replayed(run: Run, request: OperatorRequest) -> IdempotencyRecord | None:
    """The record of a keyed request that was carried out before. Raises `KeyReused` if its body was different.

    A run remembers only the last requests.
    """
    keyed = _keyed(request)
    if keyed is None:
        return None
    found = next((receipt for receipt in run.receipts if receipt.key == keyed.key), None)
    if found is not None and found.content != keyed.content:
        raise KeyReused("this idempotency key came before, with another body")
    return found


def _keyed(request: OperatorRequest) -> Keyed | None:
    return request.keyed if isinstance(request, Signalled | RedriveAsked) else None


def _remember(draft: Draft, request: OperatorRequest) -> None:
    keyed = _keyed(request)
    if keyed is not None:
        receipt = IdempotencyRecord(key=keyed.key, content=keyed.content, seq=draft.seq)
        draft.receipts = (*draft.run.receipts, receipt)[-MAX_RECEIPTS:]


def _ring_now(draft: Draft) -> None:
    """Whoever looks next finds it due."""
    draft.change_status(Status.WAITING, due_at=draft.runnable_now)
    draft.effects.append(SendWake(at=draft.now))


# --- cancel -----------------------------------------------------------------------------------


def _cancel(draft: Draft, request: CancelAsked) -> None:
    run = draft.run
    check_operation(Operation.CANCEL, run)
    if run.status is Status.CANCELLED or run.cancel_requested:
        return
    draft.note(EventType.RUN_CANCEL_REQUESTED, data={"by": request.by})
    if held(run, draft.now, draft.limits):
        # Its holder stops the tasks first: a redrive must not meet them. Should the holder die, the
        # run is looked after because it is running, which a paused one is not.
        draft.change_status(Status.RUNNING)
        draft.cancel_requested, draft.paused_at = True, None
    else:
        draft.cancel()


# --- pause and resume -------------------------------------------------------------------------


def _pause(draft: Draft, request: PauseAsked) -> None:
    run = draft.run
    check_operation(Operation.PAUSE, run)
    if run.status is Status.PAUSED:
        return
    draft.change_status(Status.PAUSED)
    draft.paused_at = draft.now
    draft.note(EventType.RUN_PAUSED, data={"by": request.by})
    if not (held(run, draft.now, draft.limits) and draft.at_work):
        draft.lease_until = None


def _resume(draft: Draft, request: ResumeAsked) -> None:
    run = draft.run
    check_operation(Operation.RESUME, run)
    if run.status is not Status.PAUSED:
        return
    length = draft.now - (run.paused_at or draft.now)
    draft.note(EventType.RUN_RESUMED, data={"by": request.by, "paused_seconds": length.total_seconds()})
    draft.paused_at, draft.deadline = None, _within_life(draft, run.deadline + length)
    if run.in_queue:
        # It goes on waiting for its turn, where it was accepted: no pause gets round the bound, a delay or a lane.
        draft.queue_deadline = None if run.queue_deadline is None else run.queue_deadline + length
        draft.change_status(Status.QUEUED)
        draft.effects.append(SendEnvelope())
        return
    draft.queue_deadline = None
    for name, state in list(draft.steps.items()):
        if state.due_at is not None:
            rules = rules_of(draft.workflow.steps[name])
            draft.step(name, due_at=rules.due_after_pause(state, state.due_at, now=draft.now, paused=length))
        if state.missing_since is not None:
            draft.step(name, missing_since=state.missing_since + length)
    if held(run, draft.now, draft.limits):
        draft.change_status(Status.RUNNING)
        return
    if draft.at_work:
        # The holder died meanwhile; nobody missed it, for nothing was to be started.
        interrupt_all(draft)
    if not draft.ended:
        _ring_now(draft)


def _within_life(draft: Draft, deadline: datetime) -> datetime:
    """A run's life is capped, pauses and redrives included (R15); what it was given before is not taken from it."""
    origin = draft.run.origin
    begun = draft.run.created_at if origin is None else origin.since
    return max(min(deadline, begun + draft.limits.max_life), min(deadline, draft.run.deadline))


# --- signal -----------------------------------------------------------------------------------


def _signal(draft: Draft, request: Signalled) -> None:
    check_signal(draft.run, draft.workflow, request.name)
    waiting = open_waits(draft.steps, draft.workflow, request.name)
    draft.note(
        EventType.SIGNAL_RECEIVED,
        step=waiting[0] if waiting else None,
        data={"name": request.name, "by": request.by, "payload": _shown(request.payload)},
    )
    _remember(draft, request)
    if not waiting:
        draft.signals = (*draft.run.signals, Signal(seq=draft.seq, name=request.name, payload=request.payload))
        return
    draft.take_signal(waiting[0], request.name, request.payload)
    if draft.status is Status.WAITING:
        _ring_now(draft)


def _shown(payload: Value) -> Json:
    """A payload as the journal tells it."""
    if isinstance(payload, BlobRef):
        return {"$ref": payload.key, "bytes": payload.bytes, "sha256": payload.sha256}
    return payload


# --- redrive ----------------------------------------------------------------------------------


def _redrive(draft: Draft, request: RedriveAsked, loaded: Loaded) -> None:
    run, workflow = draft.run, draft.workflow
    check_operation(Operation.REDRIVE, run)
    draft.try_number = run.try_number + 1
    draft.note(EventType.RUN_REDRIVEN, data={"by": request.by, "try": draft.try_number})
    _remember(draft, request)
    draft.reset({name: _fresh(draft.steps.checkpoint(name, loaded)) for name in unfinished(workflow, draft.steps)})
    draft.deadline = _within_life(draft, draft.now + timedelta(seconds=workflow.timeout_seconds))
    draft.queue_deadline = draft.finished_at = draft.expires_at = None
    draft.reason = draft.error = draft.output = None
    draft.crashes = 0
    _ring_now(draft)


def _fresh(state: StepState) -> StepState:
    """A step that begins again. Its attempts go on being counted: a number never names two executions."""
    return StepState(attempts=state.attempts)


def unfinished(workflow: Workflow, steps: Steps) -> list[str]:
    """The steps a redrive begins again, in document order.

    Those that failed the run or were cancelled with it, and what was skipped because of them. Not those
    that failed under `on_failure: continue`: the run went on without them.
    """
    broken = [
        name
        for name, step in workflow.steps.items()
        if steps[name].status is StepStatus.CANCELLED
        or (steps[name].status is StepStatus.FAILED and step.on_failure is OnFailure.FAIL)
    ]
    skipped = {name for name in downstream(workflow, broken) if steps[name].status is StepStatus.SKIPPED}
    return [name for name in workflow.steps if name in skipped or name in broken]


def downstream(workflow: Workflow, names: Iterable[str]) -> set[str]:
    """Every step that needs one of these, directly or through others."""
    found: set[str] = set()
    ahead = [reader for name in names for reader in workflow.dependents(name)]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead.extend(workflow.dependents(name))
    return found
