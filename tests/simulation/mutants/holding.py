"""What a holder owes its run: one writer, one lease, each step once (R2–R4, R7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from functions.adapters.memory import runs as memory_runs
from functions.engine import crash, due, progress
from functions.engine import decide as rules
from functions.engine.draft import Draft
from functions.engine.errors import Unanswered
from functions.engine.run import Run
from functions.engine.terms import Terms
from functions.engine.workflow import OnInterrupt, Step, Workflow
from functions.runtime.payloads import payload_key
from functions.runtime.worker.executions import Executions
from functions.runtime.worker.shell import Shell
from functions.runtime.worker.tenure import Tenure


@contextmanager
def writes_without_a_condition() -> Iterator[None]:
    """The store lets every write through (R2, R3)."""
    with patch.object(memory_runs, "holds", lambda condition, standing: True):
        yield


@contextmanager
def claims_under_a_valid_lease() -> Iterator[None]:
    """Every running record counts as abandoned (R4)."""

    def abandoned(run: Run, now: Any, terms: Terms) -> bool:
        return run.status is run.status.RUNNING

    with patch.object(rules, "abandoned", abandoned), patch.object(due, "abandoned", abandoned):
        yield


@contextmanager
def starts_before_the_commit() -> Iterator[None]:
    """Attempts begin when they are decided, not when they are recorded (R3)."""
    decide = Shell._decide

    def early(self: Shell, events: Any, loaded: Any) -> Any:
        decision = decide(self, events, loaded)
        self._executions.match(decision.run, {})
        return decision

    with patch.object(Shell, "_decide", early):
        yield


@contextmanager
def an_attempt_gives_up_in_an_outage() -> Iterator[None]:
    """A service's fault while an output is stored ends the attempt without a result."""

    async def impatient(self: Executions, record: Run, attempt: Any, outcome: Any) -> Any:
        if len(outcome.encoded) <= self._services.settings.inline_bytes:
            return outcome.output
        key = payload_key(
            record.tenant, record.id, record.submission, f"{attempt.step}/{record.epoch}-{attempt.number}"
        )
        return await self._services.blobs.put(key, outcome.encoded)

    with patch.object(Executions, "_output", impatient):
        yield


@contextmanager
def a_lost_answer_is_a_lost_run() -> Iterator[None]:
    """After a conflict with its own earlier put the shell goes, though the run is its own (R3)."""

    async def gives_up(self: Shell, row: Run | None) -> Any:
        if self._held:
            return self._lost(row)
        raise Unanswered("gave up")

    with patch.object(Shell, "_go_by", gives_up):
        yield


@contextmanager
def an_unanswered_put_is_taken_for_done() -> Iterator[None]:
    """The shell goes on as if its put had been answered (R3)."""

    async def believes(self: Shell) -> Any:
        self._answered(next(reversed(self._unanswered.values())))

    with patch.object(Shell, "_look", believes):
        yield


@contextmanager
def a_halted_holder_goes_on() -> Iterator[None]:
    """When a lease ends while a renewal is under way, the attempts stop and the renewals do not (R3)."""
    with patch.object(Tenure, "_end", lambda self: self._at_end()):
        yield


@contextmanager
def interrupted_means_retried() -> Iterator[None]:
    """`on_interrupt: fail` is not heeded: more than once is possible."""
    interrupt = crash._interrupt

    def heedless(draft: Draft, workflow: Workflow, name: str, state: Any) -> int:
        step = workflow.steps[name]
        policy = replace(step.retry, on_interrupt=OnInterrupt.RETRY)
        steps = {**workflow.steps, name: replace(step, retry=policy)}
        return interrupt(draft, replace(workflow, steps=steps), name, state)

    with patch.object(crash, "_interrupt", heedless):
        yield


@contextmanager
def crashes_are_not_counted() -> Iterator[None]:
    """A poisonous run never ends (R7)."""

    def endless(draft: Draft, workflow: Workflow) -> None:
        for name, state in list(draft.steps.items()):
            crash._interrupt(draft, workflow, name, state)

    with patch.object(rules, "interrupt_all", endless):
        yield


@contextmanager
def joins_do_not_wait() -> Iterator[None]:
    """A step starts with the first of its needs."""
    join = progress._join

    def hasty(step: Step, steps: Any) -> bool | None:
        return True if any(steps[name].settled for name in step.needs) else join(step, steps)

    with patch.object(progress, "_join", hasty):
        yield
