"""Wait steps in a run: opened at their turn, over when their time or their signal has come."""

from __future__ import annotations

from datetime import datetime, timedelta

from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.language.waits import WaitFor, WaitSignal, WaitUntil, moment_of
from fanfold.engine.language.workflow import Step
from fanfold.engine.payload import Loaded
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, StepStatus
from fanfold.engine.rules.draft import Draft


def open_wait(draft: Draft, step: Step, loaded: Loaded) -> None:
    """A wait's turn has come. One that has nothing to wait for is over at once."""
    assert step.wait is not None, "only a wait is opened"
    try:
        until = _until(draft, step, loaded)
    except ExpressionError as error:
        draft.fail_step(step, Failure(type=error.fault, message=str(error)))
        return
    except ValueError as error:
        draft.fail_step(step, Failure(type="invalid_time", message=str(error)))
        return
    attempt = draft.steps[step.name].attempts + 1
    draft.step(step.name, status=StepStatus.WAITING, attempts=attempt, started_at=draft.now, due_at=until)
    draft.note(EventType.STEP_STARTED, step=step.name, attempt=attempt)
    if isinstance(step.wait, WaitSignal):
        early = next((signal for signal in draft.get("signals") if signal.name == step.wait.name), None)
        if early is not None:
            draft.take_signal(step.name, early.name, early.payload)
    elif until is not None and until <= draft.now:
        end_wait(draft, step)


def end_wait(draft: Draft, step: Step) -> None:
    """A wait's time has come: a timer is done, a wait for a signal has failed."""
    if not isinstance(step.wait, WaitSignal):
        draft.settle(step.name, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED)
        return
    message = f"no signal {step.wait.name!r} came within {step.wait.timeout_seconds:g} s"
    draft.fail_step(step, Failure(type="timed_out", message=message))


def _until(draft: Draft, step: Step, loaded: Loaded) -> datetime | None:
    """When the wait is over though no signal came; None: never by itself. Raises ExpressionError, ValueError."""
    match step.wait:
        case WaitFor(seconds=seconds):
            return draft.now + _whole(seconds)
        case WaitUntil(moment=moment):
            return moment_of(draft.evaluate(moment, loaded))
        case WaitSignal(timeout_seconds=float(seconds)):
            return draft.now + _whole(seconds)
        case _:
            return None


def _whole(seconds: float) -> timedelta:
    """In whole milliseconds: a record holds no finer time."""
    return timedelta(milliseconds=round(seconds * 1000))
