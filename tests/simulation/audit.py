"""What must hold, checked while a schedule is played and at its end.

After every write of a record:
- its version is one more than the record's it replaces, under the same submission; a new row is
  version 1, or version 2 by a claim
- its journal is gap-free, in order of time, and goes on from the one it replaces, unchanged
- its status moved as the table of moves allows; a terminal record is never written again
- what was settled stays as it was, and none of its attempts begins again; attempts only grow
- another owner takes a running record only after its lease has ended by the true time, and only
  from a holder whom something happened to; what it takes over running is interrupted first
- a claim id belongs to one process, and only that process writes under it
- a success it records was really executed, with that very output; a failure really happened, timed
  out, or is an interruption of a step that is begun at most once
- `attempts_exhausted` needs five crashes or interruptions in fact, `timed_out` and
  `expired_in_queue` a time that passed; the sweeper ends only queued runs, dead letters none
- it stays within its tenant, and carries only its own run's data

After every write, send, reservation and return of a place:
- queued rows are within the bound
- the counter of places covers queued rows and envelopes out whose row can still be made; a place is
  returned once: by workers and the sweeper for a row that left the queue, by the API for a submit that came to nothing

When a task begins:
- the record says that this attempt has started, and no attempt begins twice

All the time:
- what the record calls started runs in its undisturbed holder; who renews has not stopped working
- messages about a run are at most two, one for each submit and each thing that went wrong, and one for each pass
- no part of the code raises what it does not declare; nothing outlives a Lambda invocation

At the end, when faults have stopped and the sweeper goes on:
- every accepted run is terminal in bounded time, every id that was returned can be read
- each key has one run; a step's state follows from those it needs, and from the journal
- a step that is begun at most once was executed at most once after an interruption: never
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from functions.engine.journal import EventType
from functions.engine.message import Envelope
from functions.engine.ports import RunKey
from functions.engine.run import MOVES, Reason, Run, Status, StepStatus
from functions.engine.values import BlobRef, parse
from tests.simulation.workload import Execution
from tests.support.clock import START

if TYPE_CHECKING:
    from functions.tasks.context import Context
    from tests.simulation.nodes import Node
    from tests.simulation.simulation import Simulation

STARTS_WITHIN = 5.0
"""Seconds in which an undisturbed holder has begun what its record calls started."""

AFTERMATH = 50.0
"""What happened to a process so long before a write of its may still cost it the run: the write itself may be late."""

REAL_FAULTS = frozenset({"Fail", "Retry", "timed_out", "interrupted"})
"""How a step may fail here. Anything else would be ours."""


class Audit:
    """Sees every write in the order they are done."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.latest: dict[RunKey, Run] = {}
        self.history: dict[RunKey, list[tuple[float, Run]]] = defaultdict(list)
        self.outstanding: dict[str, Envelope] = {}
        self.accepted: dict[RunKey, Envelope] = {}
        self.purged: set[RunKey] = set()
        self.takeovers: Counter[RunKey] = Counter()
        self.passes = 0
        self.reserved = 0
        self.submits = 0
        self._returns: Counter[bool] = Counter()
        self._owners: dict[str, Node] = {}
        self._lease_ends: dict[RunKey, float] = {}
        self._checked_at: dict[RunKey, float] = {}

    def fail(self, what: str, detail: str) -> None:
        """A promise is broken."""
        self.simulation.break_off(what, detail)

    def hold(self, true: bool, what: str, detail: object) -> None:
        """`what` is promised."""
        if not true:
            self.fail(what, str(detail))

    # --- records --------------------------------------------------------------------------------

    def wrote(self, run: Run) -> None:
        """A record was written just now, by the process whose call it was."""
        key = RunKey(tenant=run.tenant, run_id=run.id)
        node, at = self.simulation.author, self.simulation.loop.time()
        old = self.latest.get(key)
        if old is None or (old.status, old.owner, old.steps) != (run.status, run.owner, run.steps):
            what = f"v{run.version} {run.status} epoch {run.epoch} {_steps(run)}"
            self.simulation.note(node.name, f"writes {run.id[:6]}", what)
        self.latest[key] = run
        self.history[key].append((at, run))
        if old is None:
            self.hold(run.version in (1, 2), "a new row is version 1 or 2", run.version)
            self.hold(run.journal[0].type is EventType.RUN_ACCEPTED, "a journal begins with acceptance", run.journal)
        else:
            self._follows(old, run)
        self._journal(old, run)
        self._author(old, run, node)
        self._settlements(old, run)
        if run.status is Status.RUNNING and run.lease_until is not None:
            self._lease_ends[key] = (run.lease_until - START).total_seconds() - node.skew
        self.places()

    def _follows(self, old: Run, run: Run) -> None:
        self.hold(run.submission == old.submission, "a row keeps its submission", run.id)
        self.hold(run.version == old.version + 1, "versions grow by one", f"{old.version} → {run.version}")
        self.hold(not old.terminal, "terminal is final", f"{old.status} → {run.status}")
        # One commit may claim a run and let it go at once, when there is no time left to start anything.
        by_claim = run.epoch > old.epoch and Status.RUNNING in MOVES[old.status] and run.status in MOVES[Status.RUNNING]
        legal = run.status is old.status or run.status in MOVES[old.status] or by_claim
        self.hold(legal, "moves are legal", f"{old.status} → {run.status}")
        self.hold(run.epoch in (old.epoch, old.epoch + 1), "epochs count claims", f"{old.epoch} → {run.epoch}")
        for name, before in old.steps.items():
            after = run.steps[name]
            self.hold(after.attempts in (before.attempts, before.attempts + 1), "attempts are begun one by one", name)
            if before.settled:
                self.hold(after == before, "what is settled stays so", f"{name}: {before} → {after}")

    def _journal(self, old: Run | None, run: Run) -> None:
        known = () if old is None else old.journal
        self.hold(run.journal[: len(known)] == known, "the journal is never rewritten", run.id)
        new = run.journal[max(0, len(known) - 1) :]
        for before, after in pairwise(new):
            self.hold(after.seq == before.seq + 1 and after.at >= before.at, "the journal is gap-free", after)

    def _author(self, old: Run | None, run: Run, node: Node) -> None:
        """Who may write what."""
        key = RunKey(tenant=run.tenant, run_id=run.id)
        if node.kind == "api":
            return self.hold(run.version == 1 and run.status is Status.QUEUED, "the API only creates", run.version)
        if node.kind == "sweeper":
            fair = old is not None and old.status is Status.QUEUED and run.status is Status.FAILED
            return self.hold(fair, "the sweeper only ends queued runs", run.status)
        if node.kind == "deadletter":
            return self.fail("dead letters write nothing", run.id)
        if run.status is Status.FAILED and run.owner is None:
            return None  # judged by a claim, before it began
        assert run.owner is not None
        holder = self._owners.setdefault(run.owner, node)
        self.hold(holder is node, "a claim belongs to one process", f"{holder.name}, {node.name}")
        if old is None or old.owner == run.owner:
            return self._works(run, node)
        if old.status is Status.RUNNING and old.owner is not None:
            self.takeovers[key] += 1
            now, loser = self.simulation.loop.time(), self._owners[old.owner]
            self.hold(now >= self._lease_ends[key] - 0.002, "a valid lease is respected", f"{loser.name} → {node.name}")
            self.hold(not self._healthy(loser, self._written_before(key)), "a healthy holder keeps its run", loser.name)
        for name, before in old.steps.items():
            after = run.steps[name]
            again = before.status is after.status is StepStatus.RUNNING and before.attempts == after.attempts
            self.hold(not again, "what is taken over is interrupted first", name)
        return None

    def _works(self, run: Run, holder: Node) -> None:
        """A holder that goes on writing has not stopped what its record calls running."""
        now = self.simulation.loop.time()
        if holder.thawed_at > now - AFTERMATH:
            return  # what it writes may have been decided before it froze
        for name, state in run.steps.items():
            execution = self.simulation.ledger.executions.get((run.id, run.submission, name, state.attempts))
            if (
                state.status is StepStatus.RUNNING
                and execution is not None
                and execution.end in ("cancelled", "failed")
            ):
                ago = now - execution.ended_at
                self.hold(ago < AFTERMATH, "who renews works", f"{name}#{state.attempts} ended {ago:.0f} s ago")

    # --- what is recorded, and what happened ----------------------------------------------------

    def _settlements(self, old: Run | None, run: Run) -> None:
        for name, state in run.steps.items():
            before = None if old is None else old.steps.get(name)
            if not state.settled or (before is not None and before.settled):
                continue
            if state.status is StepStatus.SUCCEEDED:
                execution = self.simulation.ledger.executions.get((run.id, run.submission, name, state.attempts))
                real = execution is not None and execution.end == "succeeded"
                self.hold(real, "a success was executed", f"{name}#{state.attempts}")
                if execution is not None:
                    self.hold(
                        self._value(run, state.output) == execution.output, "an output is what was returned", name
                    )
            elif state.status is StepStatus.FAILED:
                kind = "" if state.error is None else state.error.type
                self.hold(kind in REAL_FAULTS, "a step fails by itself", f"{name}: {state.error}")
        if run.status is Status.FAILED:
            self._failure(old, run)
        if run.status is Status.SUCCEEDED:
            output = self._value(run, run.output)
            self.hold(output["marker"] == self._value(run, run.input)["marker"], "data stays with its run", run.id)

    def _failure(self, old: Run | None, run: Run) -> None:
        at = run.journal[-1].at
        match run.reason:
            case Reason.TIMED_OUT:
                self.hold(at >= run.deadline, "a run times out in time", run.deadline)
            case Reason.EXPIRED_IN_QUEUE:
                late = run.queue_deadline is not None and at >= run.queue_deadline
                self.hold(late and (old is None or old.status is Status.QUEUED), "a run expires in the queue", run.id)
            case Reason.ATTEMPTS_EXHAUSTED:
                limit = self.simulation.settings.max_crashes
                key = RunKey(tenant=run.tenant, run_id=run.id)
                worn = max((s.interruptions for s in run.steps.values()), default=0)
                self.hold(max(worn, run.crashes) >= limit, "five crashes exhaust a run", (worn, run.crashes))
                self.hold(self.takeovers[key] >= limit, "five crashes in fact", self.takeovers[key])
            case _:
                self.hold(
                    any(s.status is StepStatus.FAILED for s in run.steps.values()), "a step failed the run", run.id
                )

    def _value(self, run: Run, value: Any) -> Any:
        if not isinstance(value, BlobRef):
            return value
        own = f"{run.tenant}/{run.id}/{run.submission}/"
        self.hold(value.key.startswith(own), "payloads stay within their run", value.key)
        return parse(self.simulation.blobs.objects[value.key])

    def started(self, ctx: Context, process: str) -> Execution:
        """A task begins, in this process."""
        key = (ctx.run_id, ctx.submission, ctx.step, ctx.attempt)
        row = self.latest.get(RunKey(tenant=ctx.tenant, run_id=ctx.run_id))
        self.simulation.note(process, f"begins {ctx.run_id[:6]}", f"{ctx.step}#{ctx.attempt}")
        recorded = row is not None and row.steps[ctx.step].attempts >= ctx.attempt
        self.hold(recorded, "commit before act", f"{ctx.step}#{ctx.attempt}")
        self.hold(key not in self.simulation.ledger.executions, "an attempt begins once", f"{ctx.step}#{ctx.attempt}")
        execution = Execution(process, self.simulation.loop.time())
        self.simulation.ledger.executions[key] = execution
        return execution

    # --- queues and places ----------------------------------------------------------------------

    def sent(self, envelope: Envelope) -> None:
        """An envelope is out: its run is accepted."""
        key = RunKey(tenant=envelope.tenant, run_id=envelope.run_id)
        self.accepted.setdefault(key, envelope)
        self.outstanding.setdefault(envelope.submission, envelope)
        self.places()

    def places(self) -> None:
        """The bound, and what the counter must cover."""
        queued = sum(run.status is Status.QUEUED for run in self.latest.values())
        bound = self.simulation.deployment.bound
        self.hold(not bound or queued <= bound, "queued rows are within the bound", f"{queued} > {bound}")
        void = now_at(self.simulation.loop.time() - self.simulation.settings.place_void_seconds)
        coming = sum(
            RunKey(tenant=e.tenant, run_id=e.run_id) not in self.latest and e.place is not None and e.accepted_at > void
            for e in self.outstanding.values()
        )
        taken = self.simulation.places.taken
        self.hold(taken >= queued + coming, "places cover what is queued", f"{taken} < {queued} + {coming}")

    def given_back(self) -> None:
        """A place was returned just now."""
        by_api = self.simulation.author.kind == "api"
        self._returns[by_api] += 1
        rows = [self.latest.get(RunKey(tenant=e.tenant, run_id=e.run_id)) for e in self.outstanding.values()]
        void = sum(
            row is not None and row.submission != envelope.submission
            for row, envelope in zip(rows, self.outstanding.values(), strict=True)
        )
        most = (
            self.reserved - len(self.outstanding) + void
            if by_api
            else sum(run.status is not Status.QUEUED for run in self.latest.values())
        )
        self.hold(self._returns[by_api] <= most, "a place is returned once", f"{self._returns[by_api]} > {most}")
        self.places()

    def messages(self) -> None:
        """No run's messages multiply."""
        counts = self.simulation.queue.by_run()
        # Each submit sends an envelope of its own, void or not.
        allowed = 2 + len(self.simulation.fate.struck) + self.passes + self.simulation.deaths + self.submits
        for run_id, count in counts.items():
            self.hold(count <= allowed, "messages do not multiply", f"{run_id[:6]}: {count} > {allowed}")

    def look(self) -> None:
        """What must hold at any time."""
        now = self.simulation.loop.time()
        self.messages()
        for key, run in self.latest.items():
            since = self.history[key][-1][0]
            if run.status is not Status.RUNNING or run.owner is None or now - since < STARTS_WITHIN:
                continue
            if not self._healthy(self._owners[run.owner], since):
                continue
            self.hold(now < self._lease_ends[key], "an undisturbed holder renews", run.id)
            for name, state in run.steps.items():
                begun = (run.id, run.submission, name, state.attempts) in self.simulation.ledger.executions
                self.hold(
                    state.status is not StepStatus.RUNNING or begun,
                    "what is recorded as started runs",
                    f"{run.id}/{name}",
                )

    def _written_before(self, key: RunKey) -> float:
        """When the record that was just replaced was written."""
        return self.history[key][-2][0]

    @staticmethod
    def _healthy(holder: Node, since: float) -> bool:
        """Whether nothing happened to the process that could cost it the run it wrote then."""
        return not holder.dead and holder.disturbed_at < since - AFTERMATH

    def as_of(self, key: RunKey, at: float) -> Run | None:
        """The record as it stood then: what a lagging index knows."""
        known = [run for since, run in self.history[key] if since <= at]
        return known[-1] if known else None


def now_at(seconds: float) -> datetime:
    """The true time of the loop's."""
    return START + timedelta(seconds=seconds)


def _steps(run: Run) -> str:
    return " ".join(f"{name}:{state.status}#{state.attempts}" for name, state in run.steps.items())
