"""Operators' moves, and waits (R10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Status, StepStatus
from fanfold.engine.rules import decide as rules
from fanfold.engine.rules import operations, scheduling
from fanfold.engine.rules.draft import Draft
from fanfold.service.commit import Commit


@contextmanager
def a_signal_stays_when_it_is_taken() -> Iterator[None]:
    """One approval passes every gate of its name (R10)."""

    def take(self: Draft, step: str, name: str, payload: Any) -> None:
        self.settle(step, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=payload)

    with patch.object(Draft, "take_signal", take):
        yield


@contextmanager
def a_pause_is_not_heeded() -> Iterator[None]:
    """The holder of a paused run goes on as ever (R10)."""
    go_on = rules._go_on

    def heedless(draft: Draft, loaded: Any) -> None:
        if draft.status is Status.PAUSED:
            draft.change_status(Status.RUNNING)
        go_on(draft, loaded)

    with patch.object(rules, "_go_on", heedless):
        yield


@contextmanager
def a_cancellation_is_not_heeded() -> Iterator[None]:
    """The holder of a run that is to be cancelled goes on as ever (R10)."""

    def heedless(draft: Draft, loaded: Any) -> None:
        if draft.status is Status.RUNNING:
            scheduling.advance(draft, loaded)

    with patch.object(rules, "_go_on", heedless):
        yield


@contextmanager
def a_redrive_begins_at_the_beginning() -> Iterator[None]:
    """It throws away what was done (R10)."""
    with patch.object(operations, "unfinished", lambda workflow, steps: list(workflow.steps)):
        yield


@contextmanager
def keyed_moves_are_forgotten() -> Iterator[None]:
    """A repeated signal is another one (R10)."""
    with patch.object(operations, "_remember", lambda draft, move: None):
        yield


@contextmanager
def an_unanswered_move_is_made_again() -> Iterator[None]:
    """The API does not know its own write in the record that stands (R10)."""
    with patch.object(Commit, "is_in", lambda self, standing: False):
        yield


@contextmanager
def a_resume_forgets_the_dead() -> Iterator[None]:
    """What ran when its holder died in a pause is taken for running (R10)."""
    with patch.object(operations, "interrupt_all", lambda draft: None):
        yield


@contextmanager
def waits_end_early() -> Iterator[None]:
    """Timers and waits are over when their run is looked at."""
    start = scheduling._start_what_can

    def hasty(draft: Draft, loaded: Any) -> bool:
        for name, state in list(draft.steps.items()):
            if state.status is StepStatus.WAITING and state.map is None and state.due_at is not None:
                draft.step(name, due_at=draft.now)
        return start(draft, loaded)

    with patch.object(scheduling, "_start_what_can", hasty):
        yield


@contextmanager
def a_runnable_run_waits_for_its_timers() -> Iterator[None]:
    """What an operator has made runnable is due only when its next timer is (R4)."""
    with patch.object(Draft, "runnable_now", property(lambda self: self.first_timer)):
        yield
