"""A run being decided: a working copy on which moves are made and noted, sealed into the next record.

Only `decide` and its rooms use it, for the length of one call; outside there are only values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fanfold.engine.language.budget import Allowance
from fanfold.engine.language.templates import Template
from fanfold.engine.language.workflow import OnFailure, Step, Workflow
from fanfold.engine.payload import Json, Loaded, Value
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import (
    TERMINAL,
    Failure,
    Reason,
    Run,
    Status,
    StepState,
    StepStatus,
    before_looks,
    check_move,
    failure_view,
    first_timer,
)
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.effects import Effect, ReleaseSlot, StartAttempt, StartMap, StopMap
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.scope import evaluate

_NO_PROGRESS = frozenset({EventType.STEP_INTERRUPTED, EventType.RUN_SUSPENDED})
"""Entries that a claim can add to the journal although nothing began or ended."""


class Draft:
    """The next record in the making. `now` never lies before the journal's last entry (R11).

    `more` says that steps are left that could start, for want of `allowance`.
    """

    def __init__(
        self, run: Run, workflow: Workflow, now: datetime, limits: EngineLimits, allowance: Allowance | None = None
    ) -> None:
        self.run = run
        self.limits = limits
        self.now = max(now, run.journal[-1].at) if run.journal else now
        self.steps = Steps(run, workflow)
        self.effects: list[Effect] = []
        self.changed = False
        self.newly_settled: list[str] = []
        self.by_operator = False
        self.look_everywhere = False
        self.allowance = allowance or Allowance()
        self.more = False
        self.goes_on = True
        self._workflow = workflow
        self._entries: list[Entry] = []
        self._fields: dict[str, Any] = {}
        self._seq = run.last_seq

    def get(self, name: str) -> Any:
        """A field of the record as it stands in this draft."""
        return self._fields[name] if name in self._fields else getattr(self.run, name)

    def set(self, **fields: Any) -> None:
        """Change fields of the record, other than its status, steps and journal."""
        self._fields.update(fields)
        self.changed = True

    @property
    def status(self) -> Status:
        """The run's status in this draft."""
        status: Status = self.get("status")
        return status

    def note(self, kind: EventType, *, step: str | None = None, attempt: int | None = None, data: Json = None) -> None:
        """Add an entry to the journal."""
        self._seq += 1
        self._entries.append(
            Entry(seq=self._seq, at=self.now, type=kind, step=step, attempt=attempt, data=data or None)
        )
        self.changed = True

    def has_time_for(self, step: Step) -> bool:
        """Whether an attempt at the step, or at an item of it, would end before the time to stop (R11)."""
        stop_before = self.limits.stop_before
        return stop_before is None or self.now + timedelta(seconds=step.timeout_seconds) <= stop_before

    def evaluate(self, template: Template, loaded: Loaded, *, max_bytes: int | None = None) -> Json:
        """The template's value, for the step that is its turn. Raises as `scope.evaluate` does."""
        return evaluate(
            template,
            self.run,
            self.steps,
            loaded,
            self.allowance,
            max_bytes=self.limits.max_read_bytes if max_bytes is None else max_bytes,
            counted=max_bytes is not None,
        )

    def fails_for_time(self, step: Step) -> bool:
        """There is no time for an attempt here; where no worker of the class ever has it, the step fails.

        Else the run is to be handed over: also from a worker that has used up time for the run, because one that
        begins with it may have more than the class promises.
        """
        longest = self.limits.longest_step.get(self.run.class_name)
        fresh = self.get("owner") != self.run.owner or not _progress(self.run.journal)
        if longest is None or self.limits.stopping or step.timeout_seconds <= longest or not fresh:
            return False
        message = f"an attempt may take {step.timeout_seconds:g} s, and class {self.run.class_name} has {longest:g} s"
        self.fail_step(step, Failure(type="timeout_over_limit", message=message))
        return True

    @property
    def progressed(self) -> bool:
        """Whether anything began or ended since the run was claimed."""
        return _progress((*self.run.journal, *self._entries))

    @property
    def seq(self) -> int:
        """The newest journal entry's `seq` in this draft."""
        return self._seq

    @property
    def at_work(self) -> bool:
        """Whether an attempt of the run is recorded as running."""
        return any(state.status is StepStatus.RUNNING for state in self.steps.values())

    @property
    def first_timer(self) -> datetime:
        """When a clock alone brings something in this draft."""
        return first_timer(self.get("deadline"), self.steps.values())

    @property
    def runnable_now(self) -> datetime:
        """The `due_at` that says: whoever looks finds something to do, besides all looks at maps."""
        return before_looks(min(self.now, self.get("deadline")), self.steps.values())

    @property
    def ended(self) -> bool:
        """Whether the run is terminal in this draft."""
        return self.status in TERMINAL

    def move(self, status: Status, **fields: Any) -> None:
        """Change the run's status by a legal move.

        Leaving the queue, however, returns the queue slot, and this is the only place that does (R6). A run
        that is paused before it was ever claimed does not leave it.
        """
        check_move(self.status, status)
        slot = self.get("slot")
        waits = status is Status.QUEUED or (status is Status.PAUSED and self.run.epoch == 0)
        if slot is not None and not waits:
            if self.run.in_queue:
                self.effects.append(ReleaseSlot(class_name=self.run.class_name, slot=slot))
            self.set(slot=None)
        self.set(status=status, **fields)

    def step(self, name: str, **fields: Any) -> StepState:
        """Change a step's state."""
        state = fast_replace(self.steps[name], **fields)
        self.steps[name] = state
        self.changed = True
        return state

    def settle(self, name: str, status: StepStatus, kind: EventType, *, data: Json = None, **fields: Any) -> None:
        """End a step and note it. Any settled step is progress: the count of crashes starts anew (R7)."""
        # What an earlier attempt failed of is in the journal; the checkpoint tells how the step ended.
        state = self.step(name, **{"error": None, **fields}, status=status, finished_at=self.now, due_at=None)
        self.note(kind, step=name, attempt=state.attempts or None, data=data)
        self.set(crashes=0)
        self.newly_settled.append(name)

    def fail_step(self, step: Step, fault: Failure) -> None:
        """Settle a step as failed; unless it says `on_failure: continue`, the run fails with it."""
        self.settle(
            step.name, StepStatus.FAILED, EventType.STEP_FAILED, data={"error": failure_view(fault)}, error=fault
        )
        if step.on_failure is OnFailure.FAIL:
            message = f"step {step.name!r} failed: {fault.message}"
            self.fail(Reason.STEP_FAILED, Failure(type=fault.type, message=message))

    def fail(self, reason: Reason, fault: Failure) -> None:
        """End the run as failed; what still runs or waits is cancelled.

        A run that is to be cancelled does not fail any more, whatever happens to it meanwhile: it is cancelled.
        """
        if self.get("cancel_requested"):
            return self.cancel()
        self._break_off()
        self._end(
            Status.FAILED,
            EventType.RUN_FAILED,
            {"reason": str(reason), "error": failure_view(fault)},
            reason=reason,
            error=fault,
        )
        return None

    def cancel(self) -> None:
        """End the run as cancelled, and with it what still runs or waits."""
        self._break_off()
        self._end(Status.CANCELLED, EventType.RUN_CANCELLED, None)

    def _break_off(self) -> None:
        stops: list[Effect] = []
        begun = {effect.step for effect in self.effects if isinstance(effect, StartMap)}
        for name, state in self.steps.items():
            if state.status in (StepStatus.RUNNING, StepStatus.RETRYING, StepStatus.WAITING):
                self.steps[name] = replace(state, status=StepStatus.CANCELLED, finished_at=self.now, due_at=None)
                self.note(EventType.STEP_CANCELLED, step=name, attempt=state.attempts)
                if state.status is StepStatus.WAITING and state.map is not None and name not in begun:
                    stops.append(StopMap(step=name))
                elif state.map is not None:
                    self.steps[name] = replace(self.steps[name], map=replace(state.map, plan=None))
        # What this very decision would have started is cancelled with the rest.
        self.effects = [effect for effect in self.effects if not isinstance(effect, StartAttempt | StartMap)]
        self.effects += stops

    def succeed(self, output: Json) -> None:
        """End the run as succeeded."""
        self._end(Status.SUCCEEDED, EventType.RUN_SUCCEEDED, None, output=output)

    def _end(self, status: Status, kind: EventType, data: Json, **fields: Any) -> None:
        self.set(finished_at=self.now, expires_at=self.now + self.limits.retention)
        self.move(status, due_at=None, paused_at=None, cancel_requested=False, **fields)
        self.note(kind, data=data)

    def take_signal(self, step: str, name: str, payload: Value) -> None:
        """A wait for a signal is over. Signals of that name that came before can pass no later wait."""
        self.settle(step, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=payload)
        self.set(signals=tuple(signal for signal in self.get("signals") if signal.name != name))

    def reset(self, states: Mapping[str, StepState]) -> None:
        """Begin these steps again, as these states, wherever their old ones lie."""
        sealed = self.run.sealed
        hidden = [name for name in states if name not in self.steps and self.steps.sealed_status(name) is not None]
        if hidden:
            marks = dict.fromkeys(map(self._workflow.position, hidden))
            sealed = replace(sealed, statuses=sealed.marked(marks, len(self._workflow.steps)))
            self.steps.unseal(sealed)
            self.set(sealed=sealed)
        self.steps.update(states)
        self.changed = True

    def sealed(self) -> Run:
        """The next record; the very same object when nothing changed."""
        if not self.changed:
            return self.run
        fields = dict(self._fields)
        status = fields.get("status", self.run.status)
        at_work = status is Status.RUNNING or (status is Status.PAUSED and self.at_work)
        if at_work and not self.by_operator:
            # Every commit of a holder renews its lease; none needs a write of its own for that.
            fields["lease_until"] = self.now + self.limits.lease
        return fast_replace(self.run, steps=dict(self.steps), journal=(*self.run.journal, *self._entries), **fields)


def _progress(journal: Sequence[Entry]) -> bool:
    """Whether anything began or ended since the last claim that a journal tells of."""
    for entry in reversed(journal):
        if entry.type is EventType.RUN_CLAIMED:
            return False
        if entry.type not in _NO_PROGRESS:
            return True
    return True
