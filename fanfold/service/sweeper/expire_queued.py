"""Ends a queued run whose time is up, as the sweeper asks: decide, commit, release its slot (R6, R14)."""

from __future__ import annotations

from fanfold.engine.ports import Moment
from fanfold.engine.record.run import Run
from fanfold.engine.rules.decide import decide
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import QueueDeadlineChecked
from fanfold.service.commit import Commit, Committed, by_write_id, follow, next_record, put
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache


class QueueExpiry:
    """Settles runs that nobody holds. Call it with a run as read; it answers whether it ended the run."""

    def __init__(self, services: Services, workflows: WorkflowCache, limits: EngineLimits) -> None:
        self._services = services
        self._workflows = workflows
        self._limits = limits

    async def __call__(self, run: Run) -> bool:
        """Decide the run anew and commit what follows. False: its time is not up, or somebody else was first.

        Raises an `InfrastructureError` when it is not known to be done; the next pass sees what is true.
        """
        workflow = await self._workflows.of(run)
        decision = decide(run, workflow, (QueueDeadlineChecked(),), self._services.clock.now(), limits=self._limits)
        if not decision.changed:
            return False
        commit = Commit(
            before=run,
            run=next_record(self._services, run, decision),
            decision=decision,
            workflow=workflow,
            sent=Moment.of(self._services.clock),
        )
        made = await put(self._services, commit, by_write_id(commit))
        if isinstance(made, Committed):
            await follow(self._services, made)
            return True
        if made.error is not None:
            raise made.error
        return False
