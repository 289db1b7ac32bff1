"""Operators' moves: read the run, decide, commit, ring (R10). Two at once: one wins, the other decides anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fanfold.engine.errors import Conflict, InfrastructureError, LimitExceeded, NotFound, Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded
from fanfold.engine.ports import IfVersion, Moment, RunKey
from fanfold.engine.record.run import Run
from fanfold.engine.record.sealing import merged
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.effects import StartAttempt
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import Move
from fanfold.engine.rules.operations import replayed
from fanfold.service.effects import EffectRunner
from fanfold.service.engine_limits import engine_limits
from fanfold.service.payloads import Payloads
from fanfold.service.record_writer import RecordWriter
from fanfold.service.telemetry.reporting import logger
from fanfold.service.telemetry.run_metrics import committed, ended, new_entries
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache

BUDGET_SECONDS = 10.0
"""How long a move is tried for against a holder's writes and a service's refusals: leaves API Gateway's 30 s room."""

FIRST_PAUSE_SECONDS = 0.02
LAST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The run as it is after a move; `changed`: by this call. `seq` is the journal entry that tells of it (0: none)."""

    run: Run
    changed: bool
    seq: int


def _asking(
    run: Run, workflow: Workflow, move: Move, now: datetime, limits: EngineLimits
) -> Callable[[Loaded], Decision]:
    return lambda loaded: decide(run, workflow, (move,), now, limits=limits, loaded=loaded)


class Control:
    """Carries out operators' moves. Each is one read and one write, and a message where it makes the run runnable."""

    def __init__(self, services: Services, workflows: WorkflowCache) -> None:
        self._services = services
        self._workflows = workflows
        self._limits = engine_limits(services.settings)

    async def carry_out(self, run: Run, move: Move) -> Done:
        """Make a move of a run, given its record as read.

        Raises `WrongState`, `SignalsFull`, `KeyReused`, `NotFound` (it expired meanwhile), `LimitExceeded` (the record
        is too big, all that has ended sealed away), or an `InfrastructureError` when it is not known to be done.
        """
        workflow = await self._workflows.of(run)
        payloads = Payloads(self._services.runs, self._services.blobs, self._services.clock)
        clock = self._services.clock
        until = clock.monotonic() + BUDGET_SECONDS
        pause = FIRST_PAUSE_SECONDS
        preparation = RecordWriter(self._services, workflow, payloads)
        tried: list[_Try] = []
        while True:
            decision = await payloads.provide(run, _asking(run, workflow, move, clock.now(), self._limits))
            if not decision.changed:
                receipt = replayed(run, move)
                return Done(run=run, changed=False, seq=0 if receipt is None else receipt.seq)
            error: InfrastructureError | None = None
            try:
                wanted = await preparation.next(run, decision, signed=True)
                tried.append(_Try(wanted, decision, workflow, before=run, sent=Moment.of(clock)))
                await self._services.runs.put(
                    wanted, IfVersion(version=run.version, submission=run.submission), now=clock.now()
                )
            except Conflict as conflict:
                standing = conflict.current or await self._read(run)
            except Unanswered as unanswered:
                error, standing = unanswered, await self._read(run)
            except InfrastructureError as refused:
                error, standing = refused, run
            except LimitExceeded:
                if preparation.all_of_it:
                    raise
                preparation.all_of_it = True
                continue
            else:
                return await self._followed(tried[-1])
            if standing is None or standing.submission != run.submission:
                raise NotFound(f"there is no run {run.id!r} any more")
            done = await self._done(tried, standing)
            if done is not None:
                return await self._followed(done)
            if clock.monotonic() + pause > until:
                raise error or Unanswered("the run was written by others all the time")
            await clock.sleep(pause)
            pause = min(LAST_PAUSE_SECONDS, pause * 2)
            run = standing

    async def _read(self, run: Run) -> Run | None:
        key = RunKey(tenant=run.tenant, run_id=run.id)
        return await self._services.runs.get(key, now=self._services.clock.now())

    async def _done(self, tried: Sequence[_Try], standing: Run) -> _Try | None:
        """Which of the puts the record that stands goes back to, if any."""
        done = next((attempt for attempt in tried if attempt.is_in(standing)), None)
        if done is None and any(attempt.first.seq <= standing.sealed.last_seq for attempt in tried):
            # Its holder may have sealed the entry away meanwhile.
            whole = merged(standing, await self._services.runs.segments(standing))
            done = next((attempt for attempt in tried if attempt.is_in(whole)), None)
        return done

    async def _followed(self, done: _Try) -> Done:
        """What follows the commit; only then is the operator answered."""
        run = done.run
        # A signal may end a step, and a resumption find its holder dead.
        committed(done.before, run, new_entries(done.decision.run, done.before.last_seq), done.workflow)
        if run.terminal:  # cancelled, or a resume that found too many crashes
            ended(run, by_workflow=self._services.settings.workflow_metrics)
        facts = {"run_id": run.id, "status": str(run.status), "epoch": run.epoch, "version": run.version}
        logger().info("an operator's move", extra={**facts, "did": str(done.first.type)})
        aftermath = EffectRunner(self._services)
        for effect in done.decision.effects:
            if not isinstance(effect, StartAttempt):  # nothing is begun but by a holder
                aftermath.follow(run, effect, committed=done.sent)
        await aftermath.done()
        return Done(run=run, changed=True, seq=done.first.seq)


class _Try:
    """A put that may or may not have been carried out."""

    def __init__(self, run: Run, decision: Decision, workflow: Workflow, *, before: Run, sent: Moment) -> None:
        self.run = run
        self.decision = decision
        self.workflow = workflow
        self.before = before
        self.sent = sent
        # Every move is told of: that entry says which put it was in, whoever has written since.
        self.first = next(entry for entry in decision.run.journal if entry.seq == before.last_seq + 1)

    def is_in(self, standing: Run) -> bool:
        """Whether the record that stands goes back to this put."""
        return any(entry.write_id == self.run.write_id for entry in standing.journal)
