"""Ends a queued run whose time is up, as the sweeper asks: decide, commit, return its place (R6, R14)."""

from __future__ import annotations

from dataclasses import replace

from fanfold.engine.errors import Conflict, Unanswered
from fanfold.engine.ports import IfVersion, Moment, RunKey
from fanfold.engine.record.run import Run
from fanfold.engine.rules.decide import decide
from fanfold.engine.rules.effects import StartAttempt
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import QueueDeadlineChecked
from fanfold.service.effects import EffectRunner
from fanfold.service.telemetry.run_metrics import ended as tell
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
        ended = replace(decision.run, version=run.version + 1, write_id=self._services.ids.token())
        begun = Moment.of(self._services.clock)
        if not await self._commit(ended, IfVersion(version=run.version, submission=run.submission)):
            return False
        tell(ended, by_workflow=self._services.settings.workflow_metrics)
        aftermath = EffectRunner(self._services)
        for effect in decision.effects:
            if not isinstance(effect, StartAttempt):  # nothing is begun but by a holder
                aftermath.follow(ended, effect, committed=begun)
        await aftermath.done()
        return True

    async def _commit(self, run: Run, condition: IfVersion) -> bool:
        """Whether the record is now this one, though the answer may have been lost (R3)."""
        try:
            await self._services.runs.put(run, condition, now=self._services.clock.now())
        except Conflict:
            return False
        except Unanswered:
            key = RunKey(tenant=run.tenant, run_id=run.id)
            row = await self._services.runs.get(key, now=self._services.clock.now())
            if row is not None and row.write_id == run.write_id:
                return True
            raise
        return True
