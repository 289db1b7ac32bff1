"""How a held run moves on: which steps start, which are skipped, when it ends, when it is let go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from fanfold.engine.language.budget import PutOff
from fanfold.engine.language.step import Join
from fanfold.engine.language.step_kinds import Step
from fanfold.engine.language.templates import ExpressionError, TooLarge
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Json, Loaded, SealedStep, ValuesMissing
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import SETTLED, Failure, Reason, Run, Status, StepState, StepStatus
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import SendWake
from fanfold.engine.rules.engine_limits import MAX_DELAY
from fanfold.engine.rules.kinds.table import rules_of
from fanfold.engine.rules.scope import evaluate

FRUITLESS_BACKOFF = timedelta(seconds=5)
"""How much later than it is due a run rings that was handed over with nothing begun or ended; it doubles each time. The
sweeper, which rings for what is due each minute, is the most that this may become."""

_BY_TIME = frozenset({StepStatus.RETRYING, StepStatus.WAITING})
"""States that end when their time has come."""


def advance(draft: Draft, loaded: Loaded) -> None:
    """Take a running record as far as it goes without anything new happening."""
    if draft.now >= draft.run.deadline:
        draft.fail(Reason.TIMED_OUT, Failure(type="timed_out", message="the run's timeout passed"))
        return
    starved = _start_what_can(draft, loaded)
    if draft.ended:
        return
    if draft.steps.all_settled:
        _finish(draft, loaded)
        return
    _let_go_if_idle(draft, starved=starved)


def next_timer(run: Run) -> datetime:
    """When a held run needs a decision though nothing happens: a step falls due, or its deadline.

    While it is paused there is no such time.
    """
    if run.status is Status.PAUSED:
        return datetime.max.replace(tzinfo=UTC)
    return min([run.deadline, *(s.due_at for s in run.steps.values() if s.due_at is not None)])


def watched(run: Run, workflow: Workflow) -> bool:
    """Whether an operator's move may mean work at once for the holder, who has to look for it (R10)."""
    if run.cancel_requested or run.status is Status.PAUSED:
        return True
    return _opened_by_others(run.steps, workflow)


def attempt_input(run: Run, workflow: Workflow, step: str, loaded: Loaded) -> Json:
    """The input of a started attempt, derived again from the record (a lost `StartAttempt`)."""
    return evaluate(workflow.calling(step).input, run, Steps(run, workflow), loaded)


def _start_what_can(draft: Draft, loaded: Loaded) -> bool:
    """Start and skip until nothing changes. Returns whether a step could not start for want of time.

    Raises `ValuesMissing` for all steps together that miss a payload.
    """
    starved = left = moved = False
    missing: dict[str, BlobRef | SealedStep] = {}
    ready = deque(_candidates(draft))
    settled_seen = len(draft.newly_settled)
    while ready and not draft.ended:
        name = ready.popleft()
        try:
            took = _take(draft, name, loaded)
        except PutOff:
            left = True
        except ValuesMissing as error:
            missing |= {ref.key: ref for ref in error.refs}
        else:
            starved |= took is False
            moved |= took is True
        for settled in draft.newly_settled[settled_seen:]:
            ready.extend(draft.workflow.dependents(settled))
        settled_seen = len(draft.newly_settled)
    if missing:
        raise ValuesMissing(missing.values())
    draft.more = left and moved
    # What found no time used the decision up: then there is none for the others either.
    return starved or (left and not moved)


def _take(draft: Draft, name: str, loaded: Loaded) -> bool | None:
    """Let one step move if it can: True; False: there is no time to; None: nothing to do. Raises `PutOff`."""
    step, state = draft.workflow.steps[name], draft.steps[name]
    if state.status in _BY_TIME:
        due = state.due_at is not None and state.due_at <= draft.now
        return rules_of(step).due(draft, loaded) if due else None
    if state.status is not StepStatus.PENDING:
        return None
    match _join(step, draft.steps):
        case True:
            draft.allowance.next()
            return _begin(draft, step, loaded)
        case False:
            draft.settle(name, StepStatus.SKIPPED, EventType.STEP_SKIPPED)
            return True
        case None:
            return None


def _candidates(draft: Draft) -> Iterable[str]:
    """The steps that may move now: those behind what was just settled, and retries.

    A held record has no other step that could start, or it would have started before; that keeps
    the cost of a step independent of how many the workflow has. Only after a claim or an operator's
    move, or where a step may have been held back for want of time, all are looked at.
    """
    workflow, stop_before = draft.workflow, draft.limits.stop_before
    claimed = draft.owner != draft.run.owner or draft.look_everywhere
    if claimed or (
        stop_before is not None and draft.now + timedelta(seconds=workflow.longest_step_seconds) > stop_before
    ):
        return list(workflow.steps)
    behind = [name for settled in draft.newly_settled for name in workflow.dependents(settled)]
    return behind + [name for name, state in draft.steps.items() if state.status in _BY_TIME]


def _join(step: Step, steps: Steps) -> bool | None:
    """Whether the step is to run (True), to be skipped (False), or to wait (None)."""
    if not step.needs:
        return True
    needs = [steps[name].status for name in step.needs]
    succeeded = needs.count(StepStatus.SUCCEEDED)
    settled = len([status for status in needs if status in SETTLED])
    match step.join:
        case Join.SUCCEEDED:
            return True if succeeded == len(needs) else False if settled > succeeded else None
        case Join.SETTLED:
            return True if settled == len(needs) else None
        case Join.ANY:
            return True if succeeded else False if settled == len(needs) else None


def _begin(draft: Draft, step: Step, loaded: Loaded) -> bool:
    """A step's turn has come: skip it or start it. Returns False when there is no time to."""
    if step.when is not None:
        try:
            wanted = _truth(draft.evaluate(step.when, loaded))
        except ExpressionError as error:
            draft.fail_step(step, Failure(type=error.failure_type, message=str(error)))
            return True
        if not wanted:
            draft.settle(step.name, StepStatus.SKIPPED, EventType.STEP_SKIPPED)
            return True
    return rules_of(step).begin(draft, loaded)


def _opened_by_others(states: Mapping[str, StepState], workflow: Workflow) -> bool:
    """Whether a step waits for what no clock brings."""
    return any(
        state.status is StepStatus.WAITING and rules_of(workflow.steps[name]).opened_by_others
        for name, state in states.items()
    )


def _truth(value: Json) -> bool:
    """JMESPath's notion: false, null and empty strings, lists and objects are false; 0 is true."""
    return value is not None and value is not False and value not in ("", [], {})


def _finish(draft: Draft, loaded: Loaded) -> None:
    output: Json = None
    if draft.workflow.output is not None:
        try:
            draft.allowance.next()
            output = draft.evaluate(draft.workflow.output, loaded, max_bytes=draft.limits.max_output_bytes)
        except PutOff:
            draft.more = True
            return
        except ExpressionError as error:
            kind = "output_too_large" if isinstance(error, TooLarge) else error.failure_type
            draft.fail(Reason.STEP_FAILED, Failure(type=kind, message=f"the workflow's output: {error}"))
            return
    draft.succeed(output)


def _let_go_if_idle(draft: Draft, *, starved: bool) -> None:
    """Suspend a run that only waits, and hand over one that has no time left here (R4, R11)."""
    if draft.at_work:
        return
    stop_before = draft.limits.stop_before
    if draft.more and (stop_before is None or draft.now < stop_before):
        return
    states = draft.steps.values()
    timers = [state.due_at for state in states if state.due_at is not None]
    waiting = any(state.status is StepStatus.WAITING for state in states)
    due = min([draft.run.deadline, *timers])
    starved, draft.more = starved or draft.more, False
    if starved or (stop_before is not None and draft.now >= stop_before):
        if starved or not (timers or waiting):
            _hand_over(draft)
            return
        why = "hand_over"
    elif _opened_by_others(draft.steps, draft.workflow):
        # However near the next timer is: what is waited for rings, and nobody may sit on it.
        why = "wait"
    elif timers and due > draft.now + draft.limits.suspend_after:
        why = "wait" if waiting else "retry"
    else:
        return
    draft.change_status(Status.WAITING, due_at=due)
    draft.crashes = 0
    draft.note(EventType.RUN_SUSPENDED, data={"for": why})
    if due <= draft.now + MAX_DELAY:
        draft.effects.append(SendWake(at=due))


def _hand_over(draft: Draft) -> None:
    """Let the run go, due now, to a worker that has more time.

    One that began nothing and ended nothing since its claim counts like a crash: a run that uses up each worker's time
    for nothing must end (R7), and until then it rings ever later. Not where the worker was told to stop.
    """
    rings_at = draft.runnable_now
    if draft.progressed:
        draft.crashes = 0
    elif not draft.limits.stopping:
        count, limit = draft.crashes + 1, draft.limits.max_crashes
        draft.crashes = count
        if count >= limit:
            message = f"{limit} workers in a row died, or had to hand the run over with nothing begun or ended"
            draft.fail(Reason.ATTEMPTS_EXHAUSTED, Failure(type="attempts_exhausted", message=message))
            return
        rings_at = draft.now + FRUITLESS_BACKOFF * (1 << min(count - 1, 4))
    draft.change_status(Status.WAITING, due_at=draft.runnable_now)
    draft.note(EventType.RUN_SUSPENDED, data={"for": "hand_over"})
    draft.effects.append(SendWake(at=rings_at))
