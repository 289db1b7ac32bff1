"""What must be true of every run when all is over."""

from __future__ import annotations

from collections import Counter

from functions.engine.journal import EventType
from functions.engine.run import Run, Status, StepStatus
from functions.engine.workflow import Join, OnInterrupt, Step, Workflow
from tests.simulation.audit import Audit

SETTLES = {
    EventType.STEP_SUCCEEDED: StepStatus.SUCCEEDED,
    EventType.STEP_FAILED: StepStatus.FAILED,
    EventType.STEP_SKIPPED: StepStatus.SKIPPED,
    EventType.STEP_CANCELLED: StepStatus.CANCELLED,
}


def judge(audit: Audit, run: Run, workflow: Workflow) -> None:
    """The record, its journal, its workflow and the ledger tell one story."""
    audit.hold(run.terminal, "every accepted run ends", f"{run.id} {run.status}")
    _journal(audit, run)
    for step in workflow.steps.values():
        if step.name in run.steps:
            _step(audit, run, step)
    if run.status is Status.SUCCEEDED:
        audit.hold(all(s.settled for s in run.steps.values()), "a run succeeds when all is settled", run.id)


def _journal(audit: Audit, run: Run) -> None:
    audit.hold([e.seq for e in run.journal] == list(range(1, len(run.journal) + 1)), "the journal is gap-free", run.id)
    audit.hold(run.journal[-1].type == f"run.{run.status}", "the journal ends with the run", run.journal[-1])
    started = Counter(e.step for e in run.journal if e.type is EventType.STEP_STARTED)
    settled = [(e.step, SETTLES[e.type]) for e in run.journal if e.type in SETTLES]
    claims = sum(e.type is EventType.RUN_CLAIMED for e in run.journal)
    audit.hold(claims == run.epoch, "the journal knows every claim", (claims, run.epoch))
    audit.hold(len(settled) == len(dict(settled)), "a step settles once", settled)
    for name, state in run.steps.items():
        audit.hold(started[name] == state.attempts, "the journal agrees with the state", name)
        agrees = dict(settled).get(name) is state.status if state.settled else name not in dict(settled)
        audit.hold(agrees, "the journal agrees with the state", name)


def _step(audit: Audit, run: Run, step: Step) -> None:
    state = run.steps[step.name]
    executions = audit.simulation.ledger.of_step(run.id, run.submission, step.name)
    audit.hold(len(executions) <= state.attempts, "nothing runs unrecorded", step.name)
    if step.retry.on_interrupt is OnInterrupt.FAIL:
        kinds = [e.type for e in run.journal if e.step == step.name]
        if EventType.STEP_INTERRUPTED in kinds:
            after = kinds[kinds.index(EventType.STEP_INTERRUPTED) :]
            audit.hold(EventType.STEP_STARTED not in after, "at most once is at most once", step.name)
        audit.hold(len(executions) <= state.failures + 1, "at most once is at most once", step.name)
    if state.attempts or state.status is StepStatus.SKIPPED:
        _needs(audit, run, step)


def _needs(audit: Audit, run: Run, step: Step) -> None:
    """Its turn came when its needs said so, and not before."""
    turn = next(
        e.seq for e in run.journal if e.step == step.name and e.type in (EventType.STEP_STARTED, EventType.STEP_SKIPPED)
    )
    by_then = {e.step: SETTLES[e.type] for e in run.journal if e.type in SETTLES and e.seq < turn}
    needs = [by_then.get(name) for name in step.needs]
    succeeded = sum(status is StepStatus.SUCCEEDED for status in needs)
    match step.join:
        case Join.SUCCEEDED:
            starts = succeeded == len(needs)
        case Join.SETTLED:
            starts = None not in needs
        case Join.ANY:
            starts = succeeded > 0 or not needs
    did = run.steps[step.name].attempts > 0
    audit.hold(did == starts, "a step starts when its needs say so", f"{step.name}: {needs}")
    if not did:
        unmet = None not in needs or any(s is not None and s is not StepStatus.SUCCEEDED for s in needs)
        audit.hold(unmet, "a step is skipped when its needs say so", f"{step.name}: {needs}")
