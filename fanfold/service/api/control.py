"""Operations: read the run, decide, commit, send a wake (R10). Of two at once one wins, and the other decides again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from fanfold.engine.errors import LimitExceeded, NotFound, Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded
from fanfold.engine.ports import Moment
from fanfold.engine.record.run import Run
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import OperatorRequest
from fanfold.engine.rules.operations import replayed
from fanfold.service.commit import Commit, Committed, RecordWriter, by_signature, follow, put
from fanfold.service.engine_limits import engine_limits
from fanfold.service.payloads import Payloads
from fanfold.service.retrying import Patience, doubling, insist
from fanfold.service.telemetry.reporting import logger
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache

PATIENCE = Patience(pauses_seconds=doubling(0.02, 1.0), budget_seconds=10.0)
"""Seconds for which an operation is retried against a holder's writes and failing services; API Gateway allows 30 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The run after an operation. `changed`: by this call. `seq` is the operation's journal entry (0: none)."""

    run: Run
    changed: bool
    seq: int


@dataclass(slots=True, kw_only=True)
class _Carrying:
    """One operation in progress. `run` is the record for the next decision."""

    services: Services
    run: Run
    asked: OperatorRequest
    workflow: Workflow
    limits: EngineLimits
    payloads: Payloads
    writer: RecordWriter
    tried: list[Commit] = field(default_factory=list)

    async def attempt(self) -> Done | Committed:
        """Decide and put once. Raises an `InfrastructureError` where that is to be done again."""
        clock, run = self.services.clock, self.run
        ask = _asking(run, self.workflow, self.asked, clock.now(), self.limits)
        decision = await self.payloads.provide(run, ask)
        if not decision.changed:
            receipt = replayed(run, self.asked)
            return Done(run=run, changed=False, seq=0 if receipt is None else receipt.seq)
        try:
            wanted = await self.writer.next(run, decision, signed=True)
            sent = Moment.of(clock)
            commit = Commit(before=run, run=wanted, decision=decision, workflow=self.workflow, sent=sent)
            self.tried.append(commit)
            made = await put(self.services, commit, by_signature(self.services, self.tried))
        except LimitExceeded:
            if self.writer.all_of_it:
                raise
            self.writer.all_of_it = True
            return await self.attempt()
        if isinstance(made, Committed):
            return made
        if made.record is None or made.record.submission != run.submission:
            raise NotFound(f"there is no run {run.id!r} any more")
        self.run = made.record
        raise made.error or Unanswered("the run was written by others all the time")


def _asking(
    run: Run, workflow: Workflow, asked: OperatorRequest, now: datetime, limits: EngineLimits
) -> Callable[[Loaded], Decision]:
    return lambda loaded: decide(run, workflow, (asked,), now, limits=limits, loaded=loaded)


class Control:
    """Carries out operations. Each is one read and one write, and a message if the run becomes runnable."""

    def __init__(self, services: Services, workflows: WorkflowCache) -> None:
        self._services = services
        self._workflows = workflows
        self._limits = engine_limits(services.settings)

    async def carry_out(self, run: Run, asked: OperatorRequest) -> Done:
        """Carry out an operation on a run, given its record as read.

        Raises `WrongState`, `SignalsFull`, `KeyReused`, `NotFound` (it expired meanwhile), `LimitExceeded` (the record
        is too big, all that has ended sealed away), or an `InfrastructureError` when it is not known to be done.
        """
        workflow = await self._workflows.of(run)
        payloads = Payloads(self._services.runs, self._services.blobs, self._services.clock)
        one = _Carrying(
            services=self._services,
            run=run,
            asked=asked,
            workflow=workflow,
            limits=self._limits,
            payloads=payloads,
            writer=RecordWriter(self._services, workflow, payloads),
        )
        made = await insist(self._services.clock, one.attempt, PATIENCE)
        return made if isinstance(made, Done) else await self._followed(made)

    async def _followed(self, done: Committed) -> Done:
        """What follows the commit; only then is the operator answered."""
        first, run = done.commit.first, done.commit.run
        assert first is not None, "every operation has a journal entry"
        facts = {"run_id": run.id, "status": str(run.status), "epoch": run.epoch, "version": run.version}
        logger().info("an operation", extra={**facts, "did": str(first.type)})
        await follow(self._services, done)
        return Done(run=run, changed=True, seq=first.seq)
