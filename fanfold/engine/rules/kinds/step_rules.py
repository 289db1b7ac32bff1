"""What the rules ask of a step, whatever its kind is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta

from fanfold.engine.language.step_kinds import Step
from fanfold.engine.payload import Loaded
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import StepState, StepStatus
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.events import StepEvent


class StepRules(ABC):
    """A step's life in a run. Made for a step where something happens to it; all there is to know is in the draft."""

    __slots__ = ()
    step: Step

    @abstractmethod
    def begin(self, draft: Draft, loaded: Loaded) -> bool:
        """The step's turn has come, and its `when` holds. Returns False when there is no time for it.

        Raises `ValuesMissing`, `PutOff`.
        """

    def due(self, draft: Draft, loaded: Loaded) -> bool | None:
        """The step's time has come (`due_at`). Returns as `begin` does, None where only its worker has to look."""
        return None

    @abstractmethod
    def on_event(self, draft: Draft, event: StepEvent) -> None:
        """Something happened to the step. What the record does not wait for (any more) changes nothing."""

    def cancel(self, draft: Draft) -> None:
        """The run ends, and the step has not: it is cancelled."""
        state = draft.step(self.step.name, status=StepStatus.CANCELLED, finished_at=draft.now, due_at=None)
        draft.note(EventType.STEP_CANCELLED, step=self.step.name, attempt=state.attempts)

    def due_after_pause(self, state: StepState, due_at: datetime, *, now: datetime, paused: timedelta) -> datetime:
        """When a step that was due at `due_at` is due now that a pause is over: time stood still for it."""
        return due_at + paused

    @property
    def opened_by_others(self) -> bool:
        """Whether the step, while it is waiting, waits for what no clock brings."""
        return False
