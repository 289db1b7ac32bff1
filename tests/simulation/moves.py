"""What must hold of operators' moves and of waits, checked by the audit at every write and every answer."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fanfold.engine.language.step import OnFailure
from fanfold.engine.language.wait_step import WaitFor, WaitSignal, WaitStep, WaitUntil
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import RunKey
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.operations import Operation
from fanfold.engine.record.run import Run, Status, StepState, StepStatus
from fanfold.engine.rules.kinds.wait_step import signal_of
from fanfold.service.api.control import Done

if TYPE_CHECKING:
    from tests.simulation.audit import Audit
    from tests.simulation.operators import Order

TOLD_AS = {
    Operation.CANCEL: EventType.RUN_CANCEL_REQUESTED,
    Operation.PAUSE: EventType.RUN_PAUSED,
    Operation.RESUME: EventType.RUN_RESUMED,
    Operation.SIGNAL: EventType.SIGNAL_RECEIVED,
    Operation.REDRIVE: EventType.RUN_REDRIVEN,
}
"""The journal entry each move begins with."""


class Moves:
    """Operators' part of the audit. `asked` counts their requests, each of which may ring once."""

    def __init__(self, audit: Audit) -> None:
        self.asked = 0
        self._audit = audit
        self._told: set[tuple[RunKey, int]] = set()
        self._seqs: dict[tuple[RunKey, str, str], int] = {}
        self._forks: dict[tuple[RunKey, str], str] = {}
        self._gates: dict[tuple[RunKey, int], str] = {}

    # --- answers --------------------------------------------------------------------------------

    def answered(self, order: Order, done: Done) -> None:
        """An operator was told that the move is made, or was so before."""
        hold, run = self._audit.hold, done.run
        key = RunKey(tenant=run.tenant, run_id=run.id)
        self._audit.simulation.note(
            "operator", f"{order.kind} {run.id[:6]}", "done" if done.changed else "was so before"
        )
        standing = self._audit.latest.get(key)
        assert standing is not None, "a run that was moved is there"
        if done.changed:
            told = [e for e in standing.journal if e.seq == done.seq and e.type is TOLD_AS[order.kind]]
            hold(bool(told), "a move that was answered is in the journal", f"{order.kind} {done.seq}")
            hold((key, done.seq) not in self._told, "a move is one operator's", f"{order.kind} {done.seq}")
            self._told.add((key, done.seq))
        if order.kind is Operation.SIGNAL:
            times = len(self._received(standing, order.number))
            hold(1 <= times <= self._copies(order.number), "a signal is received once", order)
        if order.key is not None and done.seq and order.kind in (Operation.SIGNAL, Operation.REDRIVE):
            first = self._seqs.setdefault((key, order.kind, order.key), done.seq)
            hold(first == done.seq, "a keyed move is made once", f"{order.kind}: {first}, {done.seq}")

    def forked(self, source: RunKey, key: str | None, fork: Run) -> None:
        """An operator was told of a fork."""
        made = RunKey(tenant=fork.tenant, run_id=fork.id)
        simulation = self._audit.simulation
        simulation.note("operator", f"fork {source.run_id[:6]}", fork.id[:6])
        self._audit.hold(made in self._audit.latest, "an id that was returned can be read", fork.id)
        simulation.returned[made] = "a fork"
        if key is not None:
            first = self._forks.setdefault((source, key), fork.id)
            self._audit.hold(first == fork.id, "a keyed fork is made once", f"{first}, {fork.id}")

    def _copies(self, number: int) -> int:
        """How many operators give just this signal, each meaning it."""
        orders = self._audit.simulation.deployment.orders
        return max(1, sum(order.number == number and order.key is None for order in orders))

    def _received(self, run: Run, number: int) -> list[Entry]:
        return [e for e in run.journal if e.type is EventType.SIGNAL_RECEIVED and self._number(run, e) == number]

    def _number(self, run: Run, entry: Entry) -> int:
        """Which signal an entry tells of."""
        assert entry.data is not None, "a signal's entry says which"
        payload: Any = entry.data["payload"]
        if "$ref" in payload:
            payload = BlobRef(key=payload["$ref"], bytes=payload["bytes"], sha256=payload["sha256"])
        number: int = self._audit.value(run, payload)["n"]
        return number

    # --- writes ---------------------------------------------------------------------------------

    def written(self, old: Run, run: Run) -> None:
        """The API has replaced a record: by an operator's move, which leaves the rest to the holder."""
        hold = self._audit.hold
        new = run.journal[len(old.journal) :]
        hold(bool(new) and new[0].type in TOLD_AS.values(), "a move is told of", [e.type for e in new])
        hold((run.owner, run.epoch) == (old.owner, old.epoch), "operators claim nothing", run.id)
        hold(run.lease_until in (old.lease_until, None), "operators renew nothing", run.id)
        hold(all(e.type is not EventType.STEP_STARTED for e in new), "operators start nothing", run.id)
        worked = any(s.status is StepStatus.RUNNING for s in old.steps.values())
        resumed = new[0].type is EventType.RUN_RESUMED and worked and run.status is not Status.RUNNING
        if resumed or (old.status is Status.RUNNING and run.status is Status.CANCELLED):
            self._audit.taken_over(old)
        received = [self._number(run, e) for e in run.journal if e.type is EventType.SIGNAL_RECEIVED]
        often = any(times > self._copies(number) for number, times in Counter(received).items())
        hold(not often, "a signal is received once", received)

    def follows(self, old: Run, run: Run) -> None:
        """Whoever wrote: what a pause, a cancellation and a redrive mean for the next record."""
        hold = self._audit.hold
        new = run.journal[len(old.journal) :]
        by_api = self._audit.simulation.author.kind == "api"
        if old.status is Status.PAUSED:
            hold(all(e.type is not EventType.STEP_STARTED for e in new), "a paused run starts nothing", new)
            hold(by_api or run.terminal or run.status is Status.PAUSED, "operators alone end a pause", run.status)
        if old.cancel_requested:
            hold(run.cancel_requested or run.status is Status.CANCELLED, "what is to be cancelled is", run.status)
        if run.status is Status.CANCELLED:
            asked = any(e.type is EventType.RUN_CANCEL_REQUESTED for e in this_try(run))
            hold(asked, "who is cancelled was to be", run.id)
        if run.try_number != old.try_number:
            hold(run.try_number == old.try_number + 1 and old.terminal, "tries count redrives", run.try_number)
            self._redriven(old, run)

    def _redriven(self, old: Run, run: Run) -> None:
        hold = self._audit.hold
        again = begun_again(self._audit.simulation.workflow_of(run), old)
        for name, before in old.steps.items():
            after = run.steps[name]
            if name in again:
                hold(after == StepState(attempts=before.attempts), "a redrive begins again", f"{name}: {after}")
            else:
                hold(after == before, "a redrive keeps what was done", f"{name}: {before} → {after}")

    # --- waits ----------------------------------------------------------------------------------

    def passed(self, run: Run, step: WaitStep, state: StepState) -> None:
        """A wait is over, and the run goes on."""
        hold = self._audit.hold
        assert state.finished_at is not None, "a settled step has its time"
        assert state.started_at is not None, "and so has its beginning"
        match step.wait:
            case WaitFor(seconds=seconds):
                hold(state.finished_at >= state.started_at + timedelta(seconds=seconds), "a timer takes its time", step)
            case WaitUntil(moment=moment):
                until = self._audit.moment(moment)
                hold(state.finished_at >= until, "a wait lasts until its moment", f"{state.finished_at} < {until}")
            case WaitSignal(name=name):
                self._signalled(run, step, name, state)

    def _signalled(self, run: Run, step: WaitStep, name: str, state: StepState) -> None:
        hold = self._audit.hold
        number = self._audit.value(run, state.output)["n"]
        received = self._received(run, number)
        came = 1 <= len(received) <= self._copies(number)
        hold(came, "a gate opens by a signal that came", f"{step.name}: {number}")
        signal = received[0]
        hold(signal.data is not None and signal.data["name"] == name, "a gate opens by its own signal", signal)
        key = RunKey(tenant=run.tenant, run_id=run.id)
        gate = self._gates.setdefault((key, number), step.name)
        hold(gate == step.name, "a signal passes one gate only", f"{number}: {gate}, {step.name}")
        steps = self._audit.simulation.workflow_of(run).steps
        for entry in run.journal:
            if entry.type is not EventType.STEP_SUCCEEDED or entry.step in (None, step.name):
                continue
            if signal_of(steps[entry.step]) == name:
                hold(entry.seq < signal.seq, "an old signal passes no new gate", f"{signal.seq} < {entry.seq}")

    def missed(self, run: Run, step: WaitStep, state: StepState) -> None:
        """A wait has failed: only one for a signal can, by its timeout, and not while such a signal is there."""
        hold, wait = self._audit.hold, step.wait
        assert state.finished_at is not None, "a settled step has its time"
        assert state.started_at is not None, "and so has its beginning"
        seconds = wait.timeout_seconds if isinstance(wait, WaitSignal) else None
        if seconds is None:
            return self._audit.fail("only a signal can fail to come", step.name)
        hold(state.finished_at >= state.started_at + timedelta(seconds=seconds), "a wait has its time", step.name)
        there = [signal for signal in run.signals if isinstance(wait, WaitSignal) and signal.name == wait.name]
        return hold(not there, "a signal that is there opens its gate", step.name)


def this_try(run: Run) -> tuple[Entry, ...]:
    """The journal since the last redrive."""
    redriven = [n for n, entry in enumerate(run.journal) if entry.type is EventType.RUN_REDRIVEN]
    return run.journal[redriven[-1] :] if redriven else run.journal


def begun_again(workflow: Workflow, run: Run) -> set[str]:
    """The steps a redrive has to begin again: what ended the run, and what was skipped because of it."""
    found = {
        name
        for name, state in run.steps.items()
        if state.status is StepStatus.CANCELLED
        or (state.status is StepStatus.FAILED and workflow.steps[name].on_failure is OnFailure.FAIL)
    }
    behind = set(found)
    for name, step in workflow.steps.items():  # a step stands after those it needs, in the documents of schedules
        if behind & set(step.needs):
            behind.add(name)
    skipped = {name for name in behind if name in run.steps and run.steps[name].status is StepStatus.SKIPPED}
    return found | skipped
