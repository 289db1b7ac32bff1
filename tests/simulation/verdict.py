"""What must be true of every run when all is over."""

from __future__ import annotations

from collections import Counter

from fanfold.engine.language.calling import CallingStep, OnInterrupt
from fanfold.engine.language.step import Join, OnFailure
from fanfold.engine.language.step_kinds import Step
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Run, Status, StepStatus
from tests.simulation.audit import Audit
from tests.simulation.moves import this_try

SETTLES = {
    EventType.STEP_SUCCEEDED: StepStatus.SUCCEEDED,
    EventType.STEP_FAILED: StepStatus.FAILED,
    EventType.STEP_SKIPPED: StepStatus.SKIPPED,
    EventType.STEP_CANCELLED: StepStatus.CANCELLED,
}

TURNS = (EventType.STEP_STARTED, EventType.STEP_SKIPPED)


def judge(audit: Audit, run: Run, workflow: Workflow) -> None:
    """The record, its journal, its workflow and the ledger tell one story."""
    audit.hold(run.terminal, "every accepted run ends", f"{run.id} {run.status}")
    _journal(audit, run)
    for step in workflow.steps.values():
        if step.name in run.steps:
            _step(audit, run, workflow, step)
    if run.status is Status.SUCCEEDED:
        audit.hold(all(s.settled for s in run.steps.values()), "a run succeeds when all is settled", run.id)


def _journal(audit: Audit, run: Run) -> None:
    audit.hold([e.seq for e in run.journal] == list(range(1, len(run.journal) + 1)), "the journal is gap-free", run.id)
    audit.hold(run.journal[-1].type == f"run.{run.status}", "the journal ends with the run", run.journal[-1])
    started = Counter(e.step for e in run.journal if e.type is EventType.STEP_STARTED)
    claims = sum(e.type is EventType.RUN_CLAIMED for e in run.journal)
    audit.hold(claims == run.epoch, "the journal knows every claim", (claims, run.epoch))
    tries = sum(e.type is EventType.RUN_REDRIVEN for e in run.journal) + 1
    audit.hold(tries == run.try_number, "the journal knows every redrive", (tries, run.try_number))
    settled = [(e.step, SETTLES[e.type]) for e in this_try(run) if e.type in SETTLES]
    audit.hold(len(settled) == len(dict(settled)), "a step settles once", settled)
    ever = {e.step: SETTLES[e.type] for e in run.journal if e.type in SETTLES}
    for name, state in run.steps.items():
        audit.hold(started[name] == state.attempts, "the journal agrees with the state", name)
        if name not in ever and name in _taken_over(run):
            continue
        agrees = ever.get(name) is state.status if state.settled else name not in dict(settled)
        audit.hold(agrees, "the journal agrees with the state", name)


def _taken_over(run: Run) -> dict[str | None, StepStatus]:
    """What a fork began with."""
    told = {e.step for e in run.journal}
    return {n: s.status for n, s in run.steps.items() if run.origin is not None and s.settled and n not in told}


def _step(audit: Audit, run: Run, workflow: Workflow, step: Step) -> None:
    state = run.steps[step.name]
    executions = audit.simulation.ledger.of_step(run.id, run.submission, step.name)
    audit.hold(len(executions) <= state.attempts, "nothing runs unrecorded", step.name)
    if isinstance(step, CallingStep) and step.retry.on_interrupt is OnInterrupt.FAIL:
        kinds = [e.type for e in this_try(run) if e.step == step.name]
        if EventType.STEP_INTERRUPTED in kinds:
            after = kinds[kinds.index(EventType.STEP_INTERRUPTED) :]
            audit.hold(EventType.STEP_STARTED not in after, "at most once is at most once", step.name)
        if run.try_number == 1:
            audit.hold(len(executions) <= state.failures + 1, "at most once is at most once", step.name)
    if (state.attempts or state.status is StepStatus.SKIPPED) and step.name not in _taken_over(run):
        _needs(audit, run, workflow, step)


def _needs(audit: Audit, run: Run, workflow: Workflow, step: Step) -> None:
    """Its turn came when its needs said so, and not before."""
    by_then = _taken_over(run)
    turn: dict[str | None, StepStatus] | None = None
    for entry in run.journal:
        if entry.type is EventType.RUN_REDRIVEN:
            gone = _gone(workflow, by_then)
            by_then = {name: status for name, status in by_then.items() if name not in gone}
            turn = None if step.name in gone or step.name not in by_then else turn
        if turn is None and entry.step == step.name and entry.type in TURNS:
            turn = dict(by_then)
        if entry.type in SETTLES:
            by_then[entry.step] = SETTLES[entry.type]
    if turn is None:
        return  # a redrive began it again, and its turn did not come
    needs = [turn.get(name) for name in step.needs]
    succeeded = sum(status is StepStatus.SUCCEEDED for status in needs)
    match step.join:
        case Join.SUCCEEDED:
            starts = succeeded == len(needs)
        case Join.SETTLED:
            starts = None not in needs
        case Join.ANY:
            starts = succeeded > 0 or not needs
    last = [e.type for e in this_try(run) if e.step == step.name] or [
        e.type for e in run.journal if e.step == step.name
    ]
    did = last[-1] is not EventType.STEP_SKIPPED
    audit.hold(did == starts, "a step starts when its needs say so", f"{step.name}: {needs}")
    if not did:
        unmet = None not in needs or any(s is not None and s is not StepStatus.SUCCEEDED for s in needs)
        audit.hold(unmet, "a step is skipped when its needs say so", f"{step.name}: {needs}")


def _gone(workflow: Workflow, by_then: dict[str | None, StepStatus]) -> set[str]:
    """What a redrive made unsettled again."""
    gone: set[str] = set()
    behind: set[str] = set()
    for name, step in workflow.steps.items():
        status = by_then.get(name)
        ended = status is StepStatus.FAILED and step.on_failure is OnFailure.FAIL
        if status is StepStatus.CANCELLED or ended or (status is StepStatus.SKIPPED and behind & set(step.needs)):
            gone.add(name)
        if name in gone or behind & set(step.needs):
            behind.add(name)
    return gone
