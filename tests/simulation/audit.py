"""What must hold, checked while a schedule is played and at its end.

After every write of a record:
- its version is one more than the record's it replaces, under the same submission; a new row is
  version 1, or version 2 by a claim
- its journal is gap-free, in order of time, and goes on from the one it replaces, unchanged
- its status moved as the table of moves allows; a terminal record is never written again, but by a redrive
- what was settled stays as it was, and none of its attempts begins again; attempts only grow
- another owner takes a running record only after its lease has ended by the true time, and only
  from a holder whom something happened to; what it takes over running is interrupted first
- a claim id belongs to one process, and only that process writes under it
- a success it records was really executed, with that very output; a failure really happened, timed
  out, or is an interruption of a step that is begun at most once
- `attempts_exhausted` needs five crashes or interruptions in fact, `timed_out` and
  `expired_in_queue` a time that passed; the sweeper ends only queued runs, dead letters none
- what a claim would move on is due by then, and its wake claims: judged by deciding, not by the record's own `due_at`
- the crashes it is charged with are as many as holders died on it, and hand-overs of nothing; a worker that is told
  to stop, or whose time is up, counts nothing (`crashes`)
- it stays within its tenant, and carries only its own run's data, or what its fork took over
- operators claim, renew and start nothing (`moves`); a paused run starts nothing and what is to be
  cancelled is; a redrive keeps what succeeded and begins the rest again; a keyed move is made once,
  and what an operator is told of is its own
- a signal is received once and passes one gate, never one that opened after an older gate; waits take their time
- each end of a map's item that is recorded happened, is recorded once in a try, and in order; a map
  ends when its execution has, and its output is its items' (`maps`)

After every write, send, reservation and return of a slot (`admissions`):
- queued rows are within the highest bound that was deployed, and nothing is admitted past the one in force
- the counter of slots covers queued rows and envelopes out whose row can still be made; a slot is
  returned once: by workers and the sweeper for a row that left the queue, by the API for a submit that came to nothing

When a task begins:
- the record says that this attempt has started, and no attempt begins twice; its run has not ended

All the time (`liveness`):
- what the record calls started runs in its undisturbed holder; who renews has not stopped working
- messages about a run are at most two, one for each submit, move, ring of a map and each thing that went
  wrong, and one for each pass
- what has ended is stopped; a holder hears of a cancellation within a third of a lease; once faults are
  over, a run that was let go is taken up when it is due
- no part of the code raises what it does not declare; nothing outlives a Lambda invocation

At the end, when faults have stopped and the sweeper goes on:
- every accepted run is terminal in bounded time, every id that was returned can be read
- leaked slots are healed, where the windows of their repair are short enough to see it
- each key has one run; a step's state follows from those it needs, and from the journal
- a step that is begun at most once was executed at most once after an interruption: never
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fanfold.engine.language.wait_step import moment_of
from fanfold.engine.payload import BlobRef, parse
from fanfold.engine.ports import RunKey
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import MOVES, Run, Sealed, Status, StepStatus
from fanfold.service.engine_limits import engine_limits
from tests.simulation.admissions import Admissions
from tests.simulation.crashes import Crashes
from tests.simulation.liveness import AFTERMATH, STARTS_WITHIN, Liveness, healthy
from tests.simulation.maps import Maps, by_look
from tests.simulation.moves import Moves
from tests.simulation.settlements import Settlements
from tests.simulation.workload import Execution
from tests.support.clock import START
from tests.support.wrong_due import wrong_due

if TYPE_CHECKING:
    from fanfold.engine.language.templates import Template
    from fanfold.tasks.context import Context
    from tests.simulation.nodes import Node
    from tests.simulation.simulation import Simulation


class Audit:
    """Sees every write in the order they are done."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.latest: dict[RunKey, Run] = {}
        self.history: dict[RunKey, list[tuple[float, Run]]] = defaultdict(list)
        self.purged: set[RunKey] = set()
        self.takeovers: Counter[RunKey] = Counter()
        self.moves = Moves(self)
        self.maps = Maps(self)
        self.settlements = Settlements(self)
        self.crashes = Crashes(self)
        self.admissions = Admissions(self)
        self.liveness = Liveness(self)
        self.owners: dict[str, Node] = {}
        self.lease_ends: dict[RunKey, float] = {}
        self.held_at: dict[RunKey, float] = {}
        self._payloads = Stored(simulation)

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
        takeovers = self.takeovers[key]
        self._author(old, run, node)
        self.crashes.written(old, run, died=self.takeovers[key] > takeovers)
        self.settlements.written(old, run)
        renewed = run.lease_until is not None and (old is None or old.lease_until != run.lease_until)
        if renewed and run.lease_until is not None:
            # Beyond what is granted no lease means what its holder means by it: safety rests on the version (R11).
            granted = self.simulation.rollout.least_skew_seconds / 2
            skew = max(-granted, min(granted, node.skew))
            self.lease_ends[key] = (run.lease_until - START).total_seconds() - skew
        self.admissions.written(old, run)
        whole = replace(run, sealed=Sealed())  # what is sealed was put back into the record before it came here
        wrong = wrong_due(whole, self.simulation.workflow_of(run), engine_limits(node.settings), self._payloads)
        self.hold(wrong is None, "what a claim would move on is due by then, and its wake claims", f"{run.id}: {wrong}")

    def _follows(self, old: Run, run: Run) -> None:
        self.hold(run.submission == old.submission, "a row keeps its submission", run.id)
        self.hold(run.version == old.version + 1, "versions grow by one", f"{old.version} → {run.version}")
        redriven = run.try_number != old.try_number
        self.hold(redriven or not old.terminal, "terminal is final", f"{old.status} → {run.status}")
        # One commit may claim a run and let it go at once, when there is no time left to start anything.
        by_claim = run.epoch > old.epoch and Status.RUNNING in MOVES[old.status] and run.status in MOVES[Status.RUNNING]
        legal = run.status is old.status or run.status in MOVES[old.status] or by_claim
        self.hold(legal, "moves are legal", f"{old.status} → {run.status}")
        self.hold(run.epoch in (old.epoch, old.epoch + 1), "epochs count claims", f"{old.epoch} → {run.epoch}")
        for name, before in old.steps.items():
            after = run.steps[name]
            self.hold(after.attempts in (before.attempts, before.attempts + 1), "attempts are begun one by one", name)
            if before.settled and not redriven:
                self.hold(after == before, "what is settled stays so", f"{name}: {before} → {after}")
        self.moves.follows(old, run)

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
            if old is not None:
                return self.moves.written(old, run)
            return self.hold(run.version == 1 and run.status is Status.QUEUED, "the API creates", run.version)
        foreign = run.owner is None or self.owners.get(run.owner) is not node
        if old is not None and foreign and by_look(old, run):
            return self._looked(old, run)
        if node.kind == "sweeper":
            fair = old is not None and old.status is Status.QUEUED and run.status is Status.FAILED
            return self.hold(fair, "the sweeper only ends queued runs", run.status)
        if node.kind == "deadletter":
            return self.fail("dead letters write nothing", run.id)
        if run.status is Status.FAILED and run.owner is None:
            return None  # judged by a claim, before it began
        assert run.owner is not None
        holder = self.owners.setdefault(run.owner, node)
        if old is not None and holder is not node and run.error is not None and run.error.type == "internal":
            return self._taken_rightly(old, self.held_at.get(key))  # nobody could even claim it: it ends as it is
        self.hold(holder is node, "a claim belongs to one process", f"{holder.name}, {node.name}")
        held_at, self.held_at[key] = self.held_at.get(key), self.simulation.loop.time()
        if old is None or old.owner == run.owner:
            return self._works(run, node)
        if old.status is Status.RUNNING:
            self.taken_over(old, held_at)
        for name, before in old.steps.items():
            after = run.steps[name]
            again = before.status is after.status is StepStatus.RUNNING and before.attempts == after.attempts
            self.hold(not again, "what is taken over is interrupted first", name)
        return None

    def taken_over(self, old: Run, held_at: float | None = None) -> None:
        """A record is taken from its holder, whose lease must have ended, and to whom something must have happened."""
        if old.owner is None:
            return
        self.takeovers[RunKey(tenant=old.tenant, run_id=old.id)] += 1
        self._taken_rightly(old, held_at)

    def _taken_rightly(self, old: Run, held_at: float | None) -> None:
        assert old.owner is not None
        key = RunKey(tenant=old.tenant, run_id=old.id)
        now, loser, taker = self.simulation.loop.time(), self.owners[old.owner], self.simulation.author
        self.hold(now >= self.lease_ends[key] - 0.002, "a valid lease is respected", f"{loser.name} → {taker.name}")
        since = self.held_at.get(key, now) if held_at is None else held_at
        self.hold(not healthy(loser, since), "a healthy holder keeps its run", loser.name)

    def _looked(self, old: Run, run: Run) -> None:
        """Somebody who does not hold the run noted what was heard of its maps."""
        for name, before in old.steps.items():
            after = run.steps[name]
            is_map = before.map is not None and before.status is after.status is StepStatus.WAITING
            self.hold(after == before or is_map, "a look changes open maps only", name)

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

    # --- payloads and executions ------------------------------------------------------------------

    def value(self, run: Run, value: Any) -> Any:
        """A payload of the run's, from where it lies: under the run's own prefix, or its forebears'."""
        if not isinstance(value, BlobRef):
            return value
        owners, forebear = [run], run
        while forebear.origin is not None:
            forebear = self.latest[RunKey(tenant=run.tenant, run_id=forebear.origin.run_id)]
            owners.append(forebear)
        own = any(value.key.startswith(f"{run.tenant}/{one.id}/{one.submission}/") for one in owners)
        self.hold(own, "payloads stay within their run", value.key)
        return parse(self.simulation.blobs.objects[value.key])

    @staticmethod
    def moment(template: Template) -> datetime:
        """What an `until` says, which is a constant in schedules."""
        return moment_of(template.evaluate({}))

    def started(self, ctx: Context, process: str) -> Execution:
        """A task begins, in this process."""
        key = (ctx.run_id, ctx.submission, ctx.step, ctx.attempt)
        row = self.latest.get(RunKey(tenant=ctx.tenant, run_id=ctx.run_id))
        self.simulation.note(process, f"begins {ctx.run_id[:6]}", f"{ctx.step}#{ctx.attempt}")
        self._goes_on(row, ctx, process)
        if ctx.index is not None:
            return self.maps.began(row, ctx, process)
        recorded = row is not None and row.steps[ctx.step].attempts >= ctx.attempt
        self.hold(recorded, "commit before act", f"{ctx.step}#{ctx.attempt}")
        self.hold(key not in self.simulation.ledger.executions, "an attempt begins once", f"{ctx.step}#{ctx.attempt}")
        execution = Execution(process, self.simulation.loop.time())
        self.simulation.ledger.executions[key] = execution
        return execution

    def _goes_on(self, row: Run | None, ctx: Context, process: str) -> None:
        """What has ended begins nothing more, but in a process that can't know."""
        if row is None or not row.terminal:
            return
        node, now = self.simulation.nodes[process], self.simulation.loop.time()
        since = self.history[RunKey(tenant=row.tenant, run_id=row.id)][-1][0]
        carried_through = node.kind == "batch" and ctx.attempt > 1
        knows = now - since > STARTS_WITHIN and healthy(node, now) and not carried_through
        self.hold(not knows, "what has ended begins nothing", f"{ctx.step}#{ctx.attempt}")

    def as_of(self, key: RunKey, at: float) -> Run | None:
        """The record as it stood then: what a lagging index knows."""
        known = [run for since, run in self.history[key] if since <= at]
        return known[-1] if known else None


class Stored(Mapping[str, Any]):
    """Every payload there is, read when it is asked for."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def __getitem__(self, key: str) -> Any:
        return parse(self._simulation.blobs.objects[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._simulation.blobs.objects)

    def __len__(self) -> int:
        return len(self._simulation.blobs.objects)


def _steps(run: Run) -> str:
    return " ".join(f"{name}:{state.status}#{state.attempts}" for name, state in run.steps.items())
