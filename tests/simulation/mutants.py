"""The code, broken on purpose: each mutant undoes one rule, and the simulation must notice.

A mutant is patches on the real modules for as long as its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from functions.adapters import maprecords
from functions.adapters.memory import MemoryFanOut
from functions.adapters.memory import runs as memory_runs
from functions.engine import control, crash, due, progress
from functions.engine import decide as rules
from functions.engine.draft import Draft
from functions.engine.errors import InfrastructureError, Throttled, Unanswered
from functions.engine.journal import EventType
from functions.engine.message import Received
from functions.engine.ports import RunKey
from functions.engine.run import Run, Status, StepStatus
from functions.engine.terms import Terms
from functions.engine.workflow import OnInterrupt, Step, Workflow
from functions.runtime import control as moves
from functions.runtime import runner, sweep
from functions.runtime.aftermath import Aftermath
from functions.runtime.executions import Executions
from functions.runtime.payloads import payload_key
from functions.runtime.shell import Lost, Shell
from functions.runtime.submit import Submitter
from functions.runtime.sweep import _Pass
from functions.runtime.tenure import Tenure
from tests.simulation import fleet

Mutant = Callable[[], AbstractContextManager[None]]


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
def returns_a_place_again_when_unanswered() -> Iterator[None]:
    """An unanswered return is repeated like a refused one (R6)."""

    async def give_back(self: Aftermath, run: Run, effect: Any, committed: float) -> None:
        for _ in range(3):
            try:
                return await self._services.places.give_back(effect.class_name, effect.place)
            except InfrastructureError:
                await self._services.clock.sleep(1)
        return None

    with patch.object(Aftermath, "_return", give_back):
        yield


@contextmanager
def returns_a_place_twice() -> Iterator[None]:
    """Every return is done twice (R6)."""
    follow = Aftermath.follow

    def twice(self: Aftermath, run: Run, effect: Any, **given: Any) -> None:
        follow(self, run, effect, **given)
        follow(self, run, effect, **given)

    with patch.object(Aftermath, "follow", twice):
        yield


@contextmanager
def returns_the_place_of_an_unanswered_send() -> Iterator[None]:
    """The API takes an unanswered send for a refused one (R6)."""
    conclude = Submitter.conclude

    async def hasty(self: Submitter, prepared: Any, error: Any) -> Any:
        return await conclude(self, prepared, Throttled("refused, surely") if isinstance(error, Unanswered) else error)

    with patch.object(Submitter, "conclude", hasty):
        yield


@contextmanager
def rings_for_nobody() -> Iterator[None]:
    """Neither the shell nor the sweeper rings for a waiting run (R4)."""

    async def nothing(*args: Any, **given: Any) -> None:
        """Not a sound."""

    with patch.object(Aftermath, "_ring", nothing), patch.object(_Pass, "ring_for_due", nothing):
        yield


@contextmanager
def dead_leases_are_nobodys_business() -> Iterator[None]:
    """The sweeper looks after no active run (R14)."""

    async def nothing(self: _Pass, run: Run, last_turn: Any) -> None:
        """Looks away."""

    with patch.object(_Pass, "_look_after", nothing):
        yield


@contextmanager
def an_envelope_without_a_row_is_dropped() -> Iterator[None]:
    """Only the API creates rows (R2)."""
    hold = runner.Runner._hold

    async def only_rows(self: Any, base: Run, condition: Any, **given: Any) -> Any:
        if base.version == 1:
            row = await self._services.runs.get(RunKey(tenant=base.tenant, run_id=base.id), now=self._now())
            if row is None:
                return Lost(run_id=base.id, row=None, held=True)
        return await hold(self, base, condition, **given)

    after = runner.Runner._after

    def drop(self: Any, outcome: Any) -> Any:
        return runner.Done() if isinstance(outcome, Lost) else after(self, outcome)

    with patch.object(runner.Runner, "_hold", only_rows), patch.object(runner.Runner, "_after", drop):
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
def joins_do_not_wait() -> Iterator[None]:
    """A step starts with the first of its needs."""
    join = progress._join

    def hasty(step: Step, steps: Any) -> bool | None:
        return True if any(steps[name].settled for name in step.needs) else join(step, steps)

    with patch.object(progress, "_join", hasty):
        yield


@contextmanager
def dead_letters_are_dropped() -> Iterator[None]:
    """And the sweeper sends no envelope again: an envelope that died is lost (R13, R14)."""

    async def drop(services: Any, messages: Sequence[Received], *, now: Any) -> Sequence[str]:
        return []

    with patch.object(fleet, "revive", drop), patch.object(_Pass, "_envelope_lost", lambda *_: False):
        yield


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

    def heedless(draft: Draft, workflow: Workflow, loaded: Any) -> None:
        if draft.status is Status.PAUSED:
            draft.move(Status.RUNNING)
        go_on(draft, workflow, loaded)

    with patch.object(rules, "_go_on", heedless):
        yield


@contextmanager
def a_cancellation_is_not_heeded() -> Iterator[None]:
    """The holder of a run that is to be cancelled goes on as ever (R10)."""

    def heedless(draft: Draft, workflow: Workflow, loaded: Any) -> None:
        if draft.status is Status.RUNNING:
            progress.advance(draft, workflow, loaded)

    with patch.object(rules, "_go_on", heedless):
        yield


@contextmanager
def a_redrive_begins_at_the_beginning() -> Iterator[None]:
    """It throws away what was done (R10)."""
    with patch.object(control, "unfinished", lambda workflow, steps: list(workflow.steps)):
        yield


@contextmanager
def keyed_moves_are_forgotten() -> Iterator[None]:
    """A repeated signal is another one (R10)."""
    with patch.object(control, "_remember", lambda draft, move: None):
        yield


@contextmanager
def an_unanswered_move_is_made_again() -> Iterator[None]:
    """The API does not know its own write in the record that stands (R10)."""
    with patch.object(moves._Try, "is_in", lambda self, standing: False):
        yield


@contextmanager
def a_resume_forgets_the_dead() -> Iterator[None]:
    """What ran when its holder died in a pause is taken for running (R10)."""
    with patch.object(control, "interrupt_all", lambda draft, workflow: None):
        yield


@contextmanager
def waits_end_early() -> Iterator[None]:
    """Timers and waits are over when their run is looked at."""
    start = progress._start_what_can

    def hasty(draft: Draft, workflow: Workflow, loaded: Any) -> bool:
        for name, state in list(draft.steps.items()):
            if state.status is StepStatus.WAITING and state.map is None and state.due_at is not None:
                draft.step(name, due_at=draft.now)
        return start(draft, workflow, loaded)

    with patch.object(progress, "_start_what_can", hasty):
        yield


@contextmanager
def batches_are_recorded_over() -> Iterator[None]:
    """A batch that comes twice replaces its record (R9)."""

    async def put(self: Any, key: Any, record: Any, *, expires_at: Any) -> None:
        item = maprecords.to_item(key, record, expires_at=expires_at)
        self._partitions.setdefault(key, {})[item["sk"]["S"]] = item

    with patch.object(maprecords.MemoryMapRecords, "put", put):
        yield


@contextmanager
def a_map_is_looked_at_once() -> Iterator[None]:
    """An open map is over when it is looked at, whether it goes on or not (R9)."""

    async def gone(self: Any, execution: Any) -> bool:
        return False

    with patch.object(MemoryFanOut, "going", gone):
        yield


@contextmanager
def nobody_repairs_places() -> Iterator[None]:
    """A leaked place is lost for good (R6)."""

    async def nothing(services: Any, *, now: Any) -> int:
        return 0

    with patch.object(sweep, "repair", nothing):
        yield
