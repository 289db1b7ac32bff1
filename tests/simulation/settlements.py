"""What is recorded, and what happened: every end of a step or a run in a record is one of the ledger's, or of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanfold.engine.language.fail_step import FailStep
from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.wait_step import WaitStep
from fanfold.engine.ports import RunKey
from fanfold.engine.record.run import Failure, Reason, Run, Status, StepState, StepStatus

if TYPE_CHECKING:
    from fanfold.engine.language.step_kinds import Step
    from tests.simulation.audit import Audit

REAL_FAULTS = frozenset({"Fail", "Retry", "timed_out", "interrupted"})
"""How a step may fail here. Anything else would be ours."""


class Settlements:
    """The audit's part about ends."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._hold = audit.hold
        self._value = audit.value

    def written(self, old: Run | None, run: Run) -> None:
        """A record was written: what it settles for the first time."""
        for name, state in run.steps.items():
            before = None if old is None else old.steps.get(name)
            if not state.settled or (before is not None and before.settled):
                continue
            step = self._audit.simulation.workflow_of(run).steps[name]
            told = any(entry.step == name for entry in run.journal)
            if run.origin is not None and not told and state.status is not StepStatus.SKIPPED:
                self._taken(run, name, state)
            elif state.status is StepStatus.SUCCEEDED:
                self._succeeded(run, step, state)
            elif state.status is StepStatus.FAILED:
                self._failed(run, step, state)
        if run.status is Status.FAILED:
            self._failure(old, run)
        if run.status is Status.SUCCEEDED:
            output = self._value(run, run.output)
            self._hold(output["marker"] == self._value(run, run.input)["marker"], "data stays with its run", run.id)

    def _succeeded(self, run: Run, step: Step, state: StepState) -> None:
        if isinstance(step, WaitStep):
            return self._audit.moves.passed(run, step, state)
        if isinstance(step, MapStep):
            return self._audit.maps.ended(run, step, state)
        execution = self._audit.simulation.ledger.executions.get((run.id, run.submission, step.name, state.attempts))
        real = execution is not None and execution.end == "succeeded"
        self._hold(real, "a success was executed", f"{step.name}#{state.attempts}")
        same = execution is not None and self._value(run, state.output) == execution.output
        return self._hold(same, "an output is what was returned", step.name)

    def _failed(self, run: Run, step: Step, state: StepState) -> None:
        if isinstance(step, WaitStep):
            return self._audit.moves.missed(run, step, state)
        if isinstance(step, FailStep):
            return self._refused(run, step, state)
        if state.error is not None and state.error.type == "timeout_over_limit":
            most = self._audit.simulation.author.settings.classes[run.class_name].max_step_seconds
            return self._hold(step.timeout_seconds > most, "a step fails as too long where it is", step.name)
        if isinstance(step, MapStep):
            return self._audit.maps.failed(run, step, state)
        kind = "" if state.error is None else state.error.type
        if kind == "internal":
            return self._hold(
                self._audit.simulation.perils.flaws > 0, "a step fails by our bug where there is one", step.name
            )
        return self._hold(kind in REAL_FAULTS, "a step fails by itself", f"{step.name}: {state.error}")

    def _refused(self, run: Run, step: FailStep, state: StepState) -> None:
        """A fail step says what its document does, of its own run, and its run has failed with just that."""
        marker = self._value(run, run.input)["marker"]
        error = Failure(type=step.type, message=f"no more of {marker}")
        self._hold(state.error == error, "data stays with its run", f"{step.name}: {state.error}")
        # While it was being cancelled, its holder cancelled it.
        ended = (run.status is Status.FAILED and run.error == error) or run.status is Status.CANCELLED
        self._hold(ended, "a fail ends its run", f"{run.status} {run.error}")

    def _taken(self, run: Run, name: str, state: StepState) -> None:
        """A fork has taken a step over: as it was in the run it goes on from, at some time."""
        assert run.origin is not None, "only forks take over"
        source = RunKey(tenant=run.tenant, run_id=run.origin.run_id)
        ends = [
            (s.status, s.output) for _, was in self._audit.history[source] if (s := was.steps.get(name)) is not None
        ]
        self._hold((state.status, state.output) in ends, "a fork takes over what was done", f"{name}: {state}")

    def _failure(self, old: Run | None, run: Run) -> None:
        at = run.journal[-1].at
        match run.reason:
            case Reason.TIMED_OUT:
                self._hold(at >= run.deadline, "a run times out in time", run.deadline)
            case Reason.EXPIRED_IN_QUEUE:
                late = run.queue_deadline is not None and at >= run.queue_deadline
                self._hold(late and (old is None or old.status is Status.QUEUED), "a run expires in the queue", run.id)
            case Reason.ATTEMPTS_EXHAUSTED:
                limit = self._audit.simulation.author.settings.max_crashes
                key = RunKey(tenant=run.tenant, run_id=run.id)
                worn = max((s.interruptions for s in run.steps.values()), default=0)
                self._hold(max(worn, run.crashes) >= limit, "five crashes exhaust a run", (worn, run.crashes))
                ends = self._audit.takeovers[key] + self._audit.crashes.fruitless[key]
                self._hold(ends >= limit, "five crashes in fact", ends)
            case _ if run.error is not None and run.error.type == "internal":
                perils = self._audit.simulation.perils
                bugs = perils.bugs[RunKey(tenant=run.tenant, run_id=run.id)] + perils.flaws
                by_step = any(s.error is not None and s.error.type == "internal" for s in run.steps.values())
                self._hold(bugs >= 2 or by_step, "a run that can't be decided raised", f"{run.id}: {bugs}")
            case _:
                self._hold(
                    any(s.status is StepStatus.FAILED for s in run.steps.values()), "a step failed the run", run.id
                )
