"""Steps that call tasks: attempts begin, end, fail, are tried again, and are cut off."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import assert_never

from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.task_step import TaskStep
from fanfold.engine.payload import Json, Loaded
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Status, StepStatus, failure_view
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import StartAttempt
from fanfold.engine.rules.events import AttemptEvent, AttemptFailed, AttemptNotBegun, AttemptSucceeded, Emitted
from fanfold.engine.rules.kinds.step_rules import StepRules
from fanfold.engine.rules.missing_tasks import put_off
from fanfold.engine.rules.retry import delay

LARGE_INPUT = 16_000
"""An input out of more bytes than this is made again when its attempt begins, instead of waiting for that in memory."""


class CallingRules(StepRules):
    """What steps that call a task have alike."""

    __slots__ = ()
    step: TaskStep | MapStep

    def begin(self, draft: Draft, loaded: Loaded) -> bool:
        """Start the step unless its task is missing here."""
        step = self.step
        if step.task in draft.limits.missing:
            put_off(draft, step)
            return True
        if draft.steps[step.name].missing_since is not None:
            draft.step(step.name, missing_since=None, error=None)
        return self.start(draft, loaded)

    @abstractmethod
    def start(self, draft: Draft, loaded: Loaded) -> bool:
        """Record an attempt as started. Returns and raises as `begin` does."""

    def due(self, draft: Draft, loaded: Loaded) -> bool | None:
        """The next attempt's time has come."""
        if draft.steps[self.step.name].status is not StepStatus.RETRYING:
            return None
        draft.allowance.next()
        return self.begin(draft, loaded)

    # --- time -------------------------------------------------------------------------------------

    def has_time(self, draft: Draft) -> bool:
        """Whether an attempt at the step, or at an item of it, would end before the time to stop (R11)."""
        stop_before = draft.limits.stop_before
        return stop_before is None or draft.now + timedelta(seconds=self.step.timeout_seconds) <= stop_before

    def fails_for_time(self, draft: Draft) -> bool:
        """There is no time for an attempt here; where no worker of the class ever has it, the step fails.

        Else the run is to be handed over: also from a worker that has used up time for the run, because one that
        begins with it may have more than the class promises.
        """
        step, class_name = self.step, draft.run.class_name
        longest = draft.limits.longest_step.get(class_name)
        if longest is None or draft.limits.stopping or step.timeout_seconds <= longest or not draft.fresh:
            return False
        message = f"an attempt may take {step.timeout_seconds:g} s, and class {class_name} has {longest:g} s"
        draft.fail_step(step, Failure(type="timeout_over_limit", message=message))
        return True

    # --- attempts ---------------------------------------------------------------------------------

    def start_attempt(self, draft: Draft, input: Json) -> None:
        """Record the next attempt as running, and have it begun."""
        name = self.step.name
        state = draft.steps[name]
        attempt = state.attempts + 1
        draft.step(
            name,
            status=StepStatus.RUNNING,
            attempts=attempt,
            started_at=state.started_at or draft.now,
            due_at=None,
        )
        draft.note(EventType.STEP_STARTED, step=name, attempt=attempt)
        large = draft.allowance.taken > LARGE_INPUT
        draft.effects.append(StartAttempt(step=name, attempt=attempt, input=None if large else input, large=large))

    def on_attempt(self, draft: Draft, event: AttemptEvent) -> None:
        """An attempt that the record still waits for ended, or tells of its progress."""
        if not self.awaits(draft, event.attempt):
            return
        name = self.step.name
        match event:
            case AttemptSucceeded():
                draft.settle(name, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=event.output)
            case AttemptFailed():
                # What fails while the run is being cancelled is cancelled with it, and not tried again.
                if not draft.run.cancel_requested:
                    self._failed(draft, event)
            case AttemptNotBegun():
                draft.step(name, status=StepStatus.RETRYING, due_at=draft.now)
            case Emitted():
                draft.note(EventType.STEP_EMITTED, step=name, attempt=event.attempt, data={"data": event.data})
            case _:
                assert_never(event)

    def awaits(self, draft: Draft, attempt: int) -> bool:
        """Whether the record still waits for this attempt's end."""
        state = draft.steps[self.step.name]
        held = draft.status in (Status.RUNNING, Status.PAUSED)
        going = state.status is StepStatus.RUNNING or (state.status is StepStatus.WAITING and state.map is not None)
        return held and going and state.attempts == attempt

    def _failed(self, draft: Draft, event: AttemptFailed) -> None:
        name, policy = self.step.name, self.step.retry
        failures = draft.steps[name].failures + 1
        if not event.retryable or failures >= policy.max_attempts:
            draft.step(name, failures=failures)
            draft.fail_step(self.step, event.failure)
            return
        wait = delay(policy, failures=failures, chance=event.chance, after_seconds=event.after_seconds)
        draft.step(
            name,
            status=StepStatus.RETRYING,
            failures=failures,
            # While the run is paused time stands still; its resumption moves this on.
            due_at=(draft.paused_at or draft.now) + wait,
            error=event.failure,
        )
        draft.note(
            EventType.STEP_RETRY_SCHEDULED,
            step=name,
            attempt=event.attempt,
            data={"error": failure_view(event.failure), "delay_seconds": wait.total_seconds()},
        )
