"""A run being decided: a working copy on which moves are made and noted, sealed into the next record.

Only `decide` and its rooms use it, for the length of one call; outside there are only values.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from functions.engine.effects import Effect, ReturnPlace, StartAttempt
from functions.engine.journal import Entry, EventType
from functions.engine.run import TERMINAL, Fault, Reason, Run, Status, StepState, StepStatus, check_move, fault_view
from functions.engine.terms import Terms
from functions.engine.values import Json
from functions.engine.workflow import OnFailure, Step


class Draft:
    """The next record in the making. `now` never lies before the journal's last entry (R11)."""

    def __init__(self, run: Run, now: datetime, terms: Terms) -> None:
        self.run = run
        self.terms = terms
        self.now = max(now, run.journal[-1].at) if run.journal else now
        self.steps: dict[str, StepState] = dict(run.steps)
        self.effects: list[Effect] = []
        self.changed = False
        self.newly_settled: list[str] = []
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

    @property
    def ended(self) -> bool:
        """Whether the run is terminal in this draft."""
        return self.status in TERMINAL

    def move(self, status: Status, **fields: Any) -> None:
        """Change the run's status by a legal move.

        Leaving `queued`, however, returns the queue place, and this is the only place that does (R6).
        """
        check_move(self.status, status)
        if self.status is Status.QUEUED and status is not Status.QUEUED:
            place = self.get("place")
            if place is not None:
                self.effects.append(ReturnPlace(class_name=self.run.class_name, place=place))
            self.set(place=None)
        self.set(status=status, **fields)

    def step(self, name: str, **fields: Any) -> StepState:
        """Change a step's state."""
        state = replace(self.steps.get(name) or StepState(), **fields)
        self.steps[name] = state
        self.changed = True
        return state

    def settle(self, name: str, status: StepStatus, kind: EventType, *, data: Json = None, **fields: Any) -> None:
        """End a step and note it. Any settled step is progress: the count of crashes starts anew (R7)."""
        state = self.step(name, status=status, finished_at=self.now, retry_at=None, **fields)
        self.note(kind, step=name, attempt=state.attempts or None, data=data)
        self.set(crashes=0)
        self.newly_settled.append(name)

    def fail_step(self, step: Step, fault: Fault) -> None:
        """Settle a step as failed; unless it says `on_failure: continue`, the run fails with it."""
        self.settle(step.name, StepStatus.FAILED, EventType.STEP_FAILED, data={"error": fault_view(fault)}, error=fault)
        if step.on_failure is OnFailure.FAIL:
            message = f"step {step.name!r} failed: {fault.message}"
            self.fail(Reason.STEP_FAILED, Fault(type=fault.type, message=message))

    def fail(self, reason: Reason, fault: Fault) -> None:
        """End the run as failed; what still runs or waits for a retry is cancelled."""
        for name, state in self.steps.items():
            if state.status in (StepStatus.RUNNING, StepStatus.RETRYING):
                self.steps[name] = replace(state, status=StepStatus.CANCELLED, finished_at=self.now, retry_at=None)
                self.note(EventType.STEP_CANCELLED, step=name, attempt=state.attempts)
        # What this very decision would have started is cancelled with the rest.
        self.effects = [effect for effect in self.effects if not isinstance(effect, StartAttempt)]
        self._end(
            Status.FAILED,
            EventType.RUN_FAILED,
            {"reason": str(reason), "error": fault_view(fault)},
            reason=reason,
            error=fault,
        )

    def succeed(self, output: Json) -> None:
        """End the run as succeeded."""
        self._end(Status.SUCCEEDED, EventType.RUN_SUCCEEDED, None, output=output)

    def _end(self, status: Status, kind: EventType, data: Json, **fields: Any) -> None:
        self.move(status, finished_at=self.now, expires_at=self.now + self.terms.retention, due_at=None, **fields)
        self.note(kind, data=data)

    def sealed(self) -> Run:
        """The next record; the very same object when nothing changed."""
        if not self.changed:
            return self.run
        fields = dict(self._fields)
        if fields.get("status", self.run.status) is Status.RUNNING:
            # Every commit of a holder renews its lease; none needs a write of its own for that.
            fields["lease_until"] = self.now + self.terms.lease
        return replace(self.run, steps=self.steps, journal=(*self.run.journal, *self._entries), **fields)
