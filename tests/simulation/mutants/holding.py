"""What a holder owes its run: one writer, one lease, each step once (R2–R4, R7)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fanfold.adapters.memory import run_store as memory_runs
from fanfold.engine.errors import InfrastructureError, Unanswered
from fanfold.engine.language.step_kinds import Step
from fanfold.engine.record.messages import first_version
from fanfold.engine.record.run import Run
from fanfold.engine.rules import decide as rules
from fanfold.engine.rules import delivery, interruption, scheduling
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.service import commit
from fanfold.service.payloads import payload_key
from fanfold.service.worker import batch, message_handler, process, run_commits
from fanfold.service.worker.message_handler import MessageHandler, Redeliver
from fanfold.service.worker.ownership import HeldLease, Judgement, Ownership
from fanfold.service.worker.run_commits import RunCommits
from fanfold.service.worker.run_coordinator import RunCoordinator
from fanfold.service.worker.running_attempts import RunningAttempts


@contextmanager
def writes_without_a_condition() -> Iterator[None]:
    """The store lets every write through (R2, R3)."""
    with patch.object(memory_runs, "holds", lambda condition, standing: True):
        yield


@contextmanager
def claims_under_a_valid_lease() -> Iterator[None]:
    """Every running record counts as abandoned (R4)."""

    def abandoned(run: Run, now: Any, limits: EngineLimits) -> bool:
        return run.status is run.status.RUNNING

    with patch.object(rules, "abandoned", abandoned), patch.object(delivery, "abandoned", abandoned):
        yield


@contextmanager
def starts_before_the_commit() -> Iterator[None]:
    """Attempts begin when they are decided, not when they are recorded (R3)."""
    begin, decide = RunCoordinator.__init__, RunCommits._decide

    def begins(self: RunCoordinator, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self._commits.running = self._running  # type: ignore[attr-defined]  # for the early start

    def early(self: Any, events: Any, loaded: Any, **given: Any) -> Any:
        decision = decide(self, events, loaded, **given)
        self.running.match(decision.run, {})
        return decision

    with patch.object(RunCoordinator, "__init__", begins), patch.object(RunCommits, "_decide", early):
        yield


@contextmanager
def an_attempt_gives_up_in_an_outage() -> Iterator[None]:
    """A service's fault while an output is stored ends the attempt without a result."""

    async def impatient(self: RunningAttempts, record: Run, attempt: Any, outcome: Any) -> Any:
        if len(outcome.encoded) <= self._services.settings.inline_bytes:
            return outcome.output
        key = payload_key(
            record.tenant, record.id, record.submission, f"{attempt.step}/{record.epoch}-{attempt.number}"
        )
        return await self._services.blobs.put(key, outcome.encoded)

    with patch.object(RunningAttempts, "_output", impatient):
        yield


@contextmanager
def a_lost_answer_is_a_lost_run() -> Iterator[None]:
    """After a conflict with its own earlier put the shell goes, though the run is its own (R3)."""

    async def not_mine(self: Ownership, row: Run) -> None:
        if not self.held:
            raise Unanswered("gave up")

    with (
        patch.object(Ownership, "recognise", not_mine),
        patch.object(Ownership, "judge", lambda self, row: Judgement.LOST),
    ):
        yield


@contextmanager
def an_unanswered_put_is_taken_for_done() -> Iterator[None]:
    """The shell goes on as if its put had been answered (R3)."""

    put = commit.put

    async def believing(services: Any, wanted: Any, lost: Any, **given: Any) -> Any:
        made = await put(services, wanted, lost, **given)
        if isinstance(made, commit.Stands) and made.error is not None:
            return commit.Committed(commit=wanted, record=wanted.run)
        return made

    with patch.object(run_commits, "put", believing):
        yield


@contextmanager
def a_halted_holder_goes_on() -> Iterator[None]:
    """When a lease ends while a renewal is under way, the attempts stop and the renewals do not (R3)."""
    with patch.object(HeldLease, "_end", lambda self: self._at_end()):
        yield


@contextmanager
def interrupted_means_retried() -> Iterator[None]:
    """`on_interrupt: fail` is not heeded: more than once is possible."""
    with patch.object(interruption, "_judge", lambda draft, name, message: None):
        yield


@contextmanager
def crashes_are_not_counted() -> Iterator[None]:
    """A poisonous run never ends (R7)."""

    def endless(draft: Draft) -> None:
        for name, state in list(draft.steps.items()):
            interruption._interrupt(draft, name, state)

    with patch.object(rules, "interrupt_all", endless):
        yield


@contextmanager
def joins_do_not_wait() -> Iterator[None]:
    """A step starts with the first of its needs."""
    join = scheduling._join

    def hasty(step: Step, steps: Any) -> bool | None:
        return True if any(steps[name].settled for name in step.needs) else join(step, steps)

    with patch.object(scheduling, "_join", hasty):
        yield


@contextmanager
def a_stop_counts_as_a_crash() -> Iterator[None]:
    """A worker that is told to stop leaves what it has in hand to its lease (R7)."""
    with (
        patch.object(MessageHandler, "break_off", lambda self: None),
        patch.object(RunCoordinator, "break_off", lambda self: None),
    ):
        yield


@contextmanager
def a_stop_forgets_the_crashes() -> Iterator[None]:
    """What a run let go of by a worker that must stop counted before is gone (R7)."""
    break_off = interruption.break_off

    def forgetful(draft: Draft) -> None:
        break_off(draft)
        draft.crashes = 0

    with patch.object(rules, "break_off", forgetful):
        yield


@contextmanager
def what_may_kill_is_decided_before_it_is_claimed() -> Iterator[None]:
    """A claim is put with all that follows from it, and a death meanwhile is nobody's (R7)."""
    with patch.object(message_handler, "claimed_first", lambda *given, **named: False):
        yield


@contextmanager
def the_undecidable_goes_round() -> Iterator[None]:
    """A run for which nothing can be decided is tried again for ever, its slot in its hands (R7)."""
    with (
        patch.object(MessageHandler, "_repeated", lambda self, received: False),
        patch.object(message_handler, "claimed_first", lambda *given, **named: False),
    ):
        yield


@contextmanager
def receipts_count_as_crashes() -> Iterator[None]:
    """A run is charged with each time its message was received (R7)."""
    opened = MessageHandler._open

    async def charged(self: MessageHandler, received: Any, envelope: Any) -> Any:
        def begun(given: Any) -> Run:
            return replace(first_version(given), crashes=received.receives - 1)

        with patch.object(message_handler, "first_version", begun):
            return await opened(self, received, envelope)

    with patch.object(MessageHandler, "_open", charged):
        yield


@contextmanager
def a_death_counts_as_a_bug() -> Iterator[None]:
    """A message that came again, whatever the reason, may end its run when handling it raises (R7)."""

    def repeated(self: MessageHandler, received: Any) -> bool:
        return received.receives > 1 and self._is_apart(received)

    with patch.object(MessageHandler, "_repeated", repeated):
        yield


@contextmanager
def a_clock_that_is_off_is_believed() -> Iterator[None]:
    """A process works whatever its clock says (R11)."""
    with (
        patch.object(message_handler, "clock_off", lambda services: None),
        patch.object(process, "clock_off", lambda services: None),
    ):
        yield


@contextmanager
def a_bug_in_hiding_ends_the_batch() -> Iterator[None]:
    """What an adapter raises as messages are handed back flies out of the invocation (R5)."""

    async def hand_back(services: Any, ended: Any) -> Any:
        back = [(message, what.seconds) for message, what in ended if isinstance(what, Redeliver)]
        for message, seconds in back:
            with suppress(InfrastructureError):
                await services.queue.hide([message], seconds=math.ceil(seconds))
        return [message for message, _ in back]

    with patch.object(batch, "hand_back", hand_back):
        yield
