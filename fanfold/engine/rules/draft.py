"""A run being decided: a working copy on which moves are made and noted, sealed into the next record.

Only `decide` and its rooms use it, for the length of one call; outside there are only values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypedDict, Unpack

from fanfold.engine.language.budget import Allowance
from fanfold.engine.language.maps import MapState
from fanfold.engine.language.step import AnyStep, OnFailure
from fanfold.engine.language.step_kinds import Step
from fanfold.engine.language.templates import Template
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json, Loaded, Value
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.journal import Entry, EventType, began_or_ended
from fanfold.engine.record.run import (
    TERMINAL,
    Failure,
    IdempotencyRecord,
    Reason,
    Run,
    Sealed,
    Signal,
    Slot,
    Status,
    StepState,
    StepStatus,
    check_move,
    failure_view,
)
from fanfold.engine.record.steps import Steps
from fanfold.engine.record.timers import before_looks, first_timer
from fanfold.engine.rules.effects import Effect, ReleaseSlot, StartAttempt, StartMap
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.scope import evaluate

_OPEN = (StepStatus.RUNNING, StepStatus.RETRYING, StepStatus.WAITING)


class StepChanges(TypedDict, total=False):
    """New values for fields of a `StepState`."""

    status: StepStatus
    attempts: int
    failures: int
    interruptions: int
    started_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None
    output: Value
    error: Failure | None
    map: MapState | None
    missing_since: datetime | None


class Draft:
    """The next record while a decision builds it. `now` is never before the journal's last entry (R11).

    The attributes are the record's fields that decisions change. Only `change_status` changes `status`. `break_off`
    cancels an open step by the rules of its kind. `more`: further steps could start, but the `allowance` is used up.
    `renewed`: the lease is extended although nothing else changes.
    """

    def __init__(
        self,
        run: Run,
        workflow: Workflow,
        now: datetime,
        limits: EngineLimits,
        allowance: Allowance,
        *,
        break_off: Callable[[Draft, Step], None],
    ) -> None:
        self.run = run
        self.workflow = workflow
        self.limits = limits
        self.now = max(now, run.journal[-1].at) if run.journal else now
        self.steps = Steps(run, workflow)
        self.effects: list[Effect] = []
        self.newly_settled: list[str] = []
        self.by_operator = False
        self.look_everywhere = False
        self.allowance = allowance
        self.more = False
        self.goes_on = True
        self.renewed = False
        self._break_off_step = break_off
        self._entries: list[Entry] = []
        self._seq = run.last_seq
        self._steps_changed = False

        self.status: Status = run.status
        self.reason: Reason | None = run.reason
        self.error: Failure | None = run.error
        self.output: Value = run.output
        self.epoch: int = run.epoch
        self.try_number: int = run.try_number
        self.owner: str | None = run.owner
        self.lease_until: datetime | None = run.lease_until
        self.deadline: datetime = run.deadline
        self.queue_deadline: datetime | None = run.queue_deadline
        self.due_at: datetime | None = run.due_at
        self.started_at: datetime | None = run.started_at
        self.finished_at: datetime | None = run.finished_at
        self.expires_at: datetime | None = run.expires_at
        self.crashes: int = run.crashes
        self.slot: Slot | None = run.slot
        self.sealed: Sealed = run.sealed
        self.signals: tuple[Signal, ...] = run.signals
        self.receipts: tuple[IdempotencyRecord, ...] = run.receipts
        self.paused_at: datetime | None = run.paused_at
        self.cancel_requested: bool = run.cancel_requested

    def note(self, kind: EventType, *, step: str | None = None, attempt: int | None = None, data: Json = None) -> None:
        """Add an entry to the journal."""
        self._seq += 1
        self._entries.append(
            Entry(seq=self._seq, at=self.now, type=kind, step=step, attempt=attempt, data=data or None)
        )

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

    @property
    def fresh(self) -> bool:
        """Whether nothing began or ended since the run was claimed, before this decision."""
        return self.owner != self.run.owner or not began_or_ended(self.run.journal)

    @property
    def progressed(self) -> bool:
        """Whether anything began or ended since the run was claimed."""
        return began_or_ended((*self.run.journal, *self._entries))

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
        return first_timer(self.deadline, self.steps.values())

    @property
    def runnable_now(self) -> datetime:
        """The `due_at` that says: whoever looks finds something to do, besides all looks at maps."""
        return before_looks(min(self.now, self.deadline), self.steps.values())

    @property
    def ended(self) -> bool:
        """Whether the run is terminal in this draft."""
        return self.status in TERMINAL

    def change_status(self, status: Status, *, due_at: datetime | None = None) -> None:
        """Change the run's status by a legal move, and when somebody must look at it.

        Leaving the queue, however, returns the queue slot, and this is the only place that does (R6). A run
        that is paused before it was ever claimed does not leave it.
        """
        check_move(self.status, status)
        waits = status is Status.QUEUED or (status is Status.PAUSED and self.run.epoch == 0)
        if self.slot is not None and not waits:
            if self.run.in_queue:
                self.effects.append(ReleaseSlot(class_name=self.run.class_name, slot=self.slot))
            self.slot = None
        self.status, self.due_at = status, due_at

    def step(self, name: str, **changes: Unpack[StepChanges]) -> StepState:
        """Change a step's state."""
        state = fast_replace(self.steps[name], **changes)
        self.steps[name] = state
        self._steps_changed = True
        return state

    def settle(
        self,
        name: str,
        status: StepStatus,
        kind: EventType,
        *,
        output: Value = None,
        error: Failure | None = None,
        data: Json = None,
    ) -> None:
        """End a step and note it. Any settled step is progress: the count of crashes starts anew (R7).

        What an earlier attempt failed of is in the journal; the checkpoint tells how the step ended.
        """
        state = self.step(name, status=status, output=output, error=error, finished_at=self.now, due_at=None)
        self.note(kind, step=name, attempt=state.attempts or None, data=data)
        self.crashes = 0
        self.newly_settled.append(name)

    def fail_step(self, step: AnyStep, failure: Failure) -> None:
        """Settle a step as failed; unless it says `on_failure: continue`, the run fails with it."""
        self.settle(
            step.name, StepStatus.FAILED, EventType.STEP_FAILED, data={"error": failure_view(failure)}, error=failure
        )
        if step.on_failure is OnFailure.FAIL:
            message = f"step {step.name!r} failed: {failure.message}"
            self.fail(Reason.STEP_FAILED, Failure(type=failure.type, message=message))

    def fail(self, reason: Reason, failure: Failure) -> None:
        """End the run as failed; what still runs or waits is cancelled.

        A run that is to be cancelled does not fail any more, whatever happens to it meanwhile: it is cancelled.
        """
        if self.cancel_requested:
            return self.cancel()
        self._break_off()
        self._end(Status.FAILED)
        self.reason, self.error = reason, failure
        self.note(EventType.RUN_FAILED, data={"reason": str(reason), "error": failure_view(failure)})
        return None

    def cancel(self) -> None:
        """End the run as cancelled, and with it what still runs or waits."""
        self._break_off()
        self._end(Status.CANCELLED)
        self.note(EventType.RUN_CANCELLED)

    def _break_off(self) -> None:
        for name, state in self.steps.items():
            if state.status in _OPEN:
                self._break_off_step(self, self.workflow.steps[name])
        # What this very decision would have started is cancelled with the rest.
        self.effects = [effect for effect in self.effects if not isinstance(effect, StartAttempt | StartMap)]

    def succeed(self, output: Value) -> None:
        """End the run as succeeded."""
        self._end(Status.SUCCEEDED)
        self.output = output
        self.note(EventType.RUN_SUCCEEDED)

    def _end(self, status: Status) -> None:
        self.finished_at, self.expires_at = self.now, self.now + self.limits.retention
        self.change_status(status)
        self.paused_at, self.cancel_requested = None, False

    def take_signal(self, step: str, name: str, payload: Value) -> None:
        """A wait for a signal is over. Signals of that name that came before can pass no later wait."""
        self.settle(step, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=payload)
        self.signals = tuple(signal for signal in self.signals if signal.name != name)

    def reset(self, states: Mapping[str, StepState]) -> None:
        """Begin these steps again, as these states, wherever their old ones lie."""
        hidden = [name for name in states if name not in self.steps and self.steps.sealed_status(name) is not None]
        if hidden:
            marks = dict.fromkeys(map(self.workflow.position, hidden))
            statuses = self.sealed.marked(marks, len(self.workflow.steps))
            self.sealed = replace(self.sealed, statuses=statuses)
            self.steps.unseal(self.sealed)
        self.steps.update(states)
        self._steps_changed = True

    def next_record(self) -> Run:
        """The next record; the very same object when nothing changed."""
        fields = _fields_of(self)
        if not (self._entries or self._steps_changed or self.renewed) and fields == _fields_of(self.run):
            return self.run
        at_work = self.status is Status.RUNNING or (self.status is Status.PAUSED and self.at_work)
        # Every commit of a holder renews its lease; none needs a write of its own for that.
        renews = at_work and not self.by_operator
        changes = dict(zip(_FIELDS, fields, strict=True))
        if renews:
            changes["lease_until"] = self.now + self.limits.lease
        journal = (*self.run.journal, *self._entries)
        return fast_replace(self.run, **changes, steps=dict(self.steps), journal=journal)


_FIELDS = (
    "status", "reason", "error", "output", "epoch", "try_number", "owner", "lease_until", "deadline", "queue_deadline",
    "due_at", "started_at", "finished_at", "expires_at", "crashes", "slot", "sealed", "signals", "receipts",
    "paused_at", "cancel_requested",
)  # fmt: skip
"""What a draft and a record have alike."""

_fields_of: Callable[[Draft | Run], tuple[Any, ...]] = attrgetter(*_FIELDS)
