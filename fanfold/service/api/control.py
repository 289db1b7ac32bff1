"""Operators' moves: read the run, decide, commit, send a wake (R10). Two at once: one wins, the other decides anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fanfold.engine.errors import Conflict, InfrastructureError, LimitExceeded, NotFound, Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded
from fanfold.engine.ports import Moment, RunKey
from fanfold.engine.record.run import Run
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import Move
from fanfold.engine.rules.operations import replayed
from fanfold.service.commit import Commit, follow, put, which_of
from fanfold.service.engine_limits import engine_limits
from fanfold.service.payloads import Payloads
from fanfold.service.record_writer import RecordWriter
from fanfold.service.telemetry.reporting import logger
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
        writer = RecordWriter(self._services, workflow, payloads)
        tried: list[Commit] = []
        while True:
            decision = await payloads.provide(run, _asking(run, workflow, move, clock.now(), self._limits))
            if not decision.changed:
                receipt = replayed(run, move)
                return Done(run=run, changed=False, seq=0 if receipt is None else receipt.seq)
            error: InfrastructureError | None = None
            try:
                wanted = await writer.next(run, decision, signed=True)
                commit = Commit(before=run, run=wanted, decision=decision, workflow=workflow, sent=Moment.of(clock))
                tried.append(commit)
                await put(self._services, commit)
            except Conflict as conflict:
                recorded = conflict.current or await self._read(run)
            except Unanswered as unanswered:
                error, recorded = unanswered, await self._read(run)
            except InfrastructureError as refused:
                error, recorded = refused, run
            except LimitExceeded:
                if writer.all_of_it:
                    raise
                writer.all_of_it = True
                continue
            else:
                return await self._followed(tried[-1])
            if recorded is None or recorded.submission != run.submission:
                raise NotFound(f"there is no run {run.id!r} any more")
            done = await which_of(self._services, tried, recorded)
            if done is not None:
                return await self._followed(done)
            if clock.monotonic() + pause > until:
                raise error or Unanswered("the run was written by others all the time")
            await clock.sleep(pause)
            pause = min(LAST_PAUSE_SECONDS, pause * 2)
            run = recorded

    async def _read(self, run: Run) -> Run | None:
        key = RunKey(tenant=run.tenant, run_id=run.id)
        return await self._services.runs.get(key, now=self._services.clock.now())

    async def _followed(self, done: Commit) -> Done:
        """What follows the commit; only then is the operator answered."""
        assert done.first is not None, "every move is told of in the journal"
        run = done.run
        facts = {"run_id": run.id, "status": str(run.status), "epoch": run.epoch, "version": run.version}
        logger().info("an operation", extra={**facts, "did": str(done.first.type)})
        await follow(self._services, done)
        return Done(run=run, changed=True, seq=done.first.seq)
