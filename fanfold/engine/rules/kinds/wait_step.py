"""A wait step's life in the record: opened at its turn, over when its time or its signal has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from fanfold.engine.errors import SignalsFull
from fanfold.engine.language.step_kinds import Step
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.language.wait_step import WaitFor, WaitSignal, WaitStep, WaitUntil, moment_of
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.operations import Operation, check_operation
from fanfold.engine.record.run import Failure, Run, StepState, StepStatus
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.events import StepEvent
from fanfold.engine.rules.kinds.step_rules import StepRules

MAX_SIGNALS = 100
"""Signals a run may hold that no wait has taken yet: so many under the names that its workflow waits for, and so many
under all other names. The first of a name that is waited for is always held."""


@dataclass(slots=True)
class WaitRules(StepRules):
    """The rules of a step that waits."""

    step: WaitStep

    def begin(self, draft: Draft, loaded: Loaded) -> bool:
        """Open the wait. One that has nothing to wait for is over at once."""
        step, wait = self.step, self.step.wait
        try:
            until = self._until(draft, loaded)
        except ExpressionError as error:
            draft.fail_step(step, Failure(type=error.failure_type, message=str(error)))
            return True
        except ValueError as error:
            draft.fail_step(step, Failure(type="invalid_time", message=str(error)))
            return True
        attempt = draft.steps[step.name].attempts + 1
        draft.step(step.name, status=StepStatus.WAITING, attempts=attempt, started_at=draft.now, due_at=until)
        draft.note(EventType.STEP_STARTED, step=step.name, attempt=attempt)
        if isinstance(wait, WaitSignal):
            early = next((signal for signal in draft.signals if signal.name == wait.name), None)
            if early is not None:
                draft.take_signal(step.name, early.name, early.payload)
        elif until is not None and until <= draft.now:
            self.due(draft, loaded)
        return True

    def on_event(self, draft: Draft, event: StepEvent) -> None:
        """A wait has no attempts. A signal is for the run, which finds the wait that takes it."""

    def due(self, draft: Draft, loaded: Loaded) -> bool:
        """The wait's time has come: a timer is done, a wait for a signal has failed."""
        step, wait = self.step, self.step.wait
        if not isinstance(wait, WaitSignal):
            draft.settle(step.name, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED)
            return True
        message = f"no signal {wait.name!r} came within {wait.timeout_seconds:g} s"
        draft.fail_step(step, Failure(type="timed_out", message=message))
        return True

    def due_after_pause(self, state: StepState, due_at: datetime, *, now: datetime, paused: timedelta) -> datetime:
        """A moment of the calendar stays what it is."""
        return due_at if isinstance(self.step.wait, WaitUntil) else due_at + paused

    @property
    def opened_by_others(self) -> bool:
        """Somebody gives a signal."""
        return isinstance(self.step.wait, WaitSignal)

    def _until(self, draft: Draft, loaded: Loaded) -> datetime | None:
        """When the wait is over though no signal came; None: never by itself. Raises ExpressionError, ValueError."""
        match self.step.wait:
            case WaitFor(seconds=seconds):
                return draft.now + _whole(seconds)
            case WaitUntil(moment=moment):
                return moment_of(draft.evaluate(moment, loaded))
            case WaitSignal(timeout_seconds=timeout):
                return None if timeout is None else draft.now + _whole(timeout)


def _whole(seconds: float) -> timedelta:
    """In whole milliseconds: a record holds no finer time."""
    return timedelta(milliseconds=round(seconds * 1000))


# --- signals ----------------------------------------------------------------------------------


def open_waits(states: Mapping[str, StepState], workflow: Workflow, name: str) -> list[str]:
    """The open waits for a signal of that name, those that stand first in the document before the others."""
    found = [
        step
        for step, state in states.items()
        if state.status is StepStatus.WAITING and signal_of(workflow.steps[step]) == name
    ]
    return sorted(found, key=workflow.position)


def signal_of(step: Step) -> str | None:
    """The name of the signal that the step waits for; None for any other step."""
    return step.wait.name if isinstance(step, WaitStep) and isinstance(step.wait, WaitSignal) else None


def check_signal(run: Run, workflow: Workflow, name: str) -> None:
    """Raises `WrongState` or `SignalsFull` where a run takes no signal of this name: nothing is to be stored for it."""
    check_operation(Operation.SIGNAL, run)
    if len(run.signals) >= MAX_SIGNALS and not open_waits(run.steps, workflow, name):
        _check_room(run, workflow, name)


def _check_room(run: Run, workflow: Workflow, name: str) -> None:
    """Signals that nobody waits for keep none out that somebody waits for. Raises `SignalsFull`."""
    names = {signal_of(step) for step in workflow.steps.values()}
    held = Counter(signal.name for signal in run.signals)
    beside = sum(count for other, count in held.items() if (other in names) == (name in names))
    if beside >= MAX_SIGNALS and not (name in names and name not in held):
        raise SignalsFull(run.status, held)
