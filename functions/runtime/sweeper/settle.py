"""Ends a queued run whose time is up, as the sweeper asks: decide, commit, return its place (R6, R14)."""

from __future__ import annotations

from dataclasses import replace

from functions.engine.decide import decide
from functions.engine.effects import StartAttempt
from functions.engine.errors import Conflict, Unanswered
from functions.engine.events import Swept
from functions.engine.ports import Moment, Replaces, RunKey
from functions.engine.run import Run
from functions.engine.terms import Terms
from functions.runtime.aftermath import Aftermath
from functions.runtime.reckoning import ended as tell
from functions.runtime.wiring import Services
from functions.runtime.workflows import WorkflowCache


class Settler:
    """Settles runs that nobody holds. Call it with a run as read; it answers whether it ended the run."""

    def __init__(self, services: Services, workflows: WorkflowCache, terms: Terms) -> None:
        self._services = services
        self._workflows = workflows
        self._terms = terms

    async def __call__(self, run: Run) -> bool:
        """Decide the run anew and commit what follows. False: its time is not up, or somebody else was first.

        Raises an `InfrastructureError` when it is not known to be done; the next pass sees what is true.
        """
        workflow = await self._workflows.of(run)
        decision = decide(run, workflow, (Swept(),), self._services.clock.now(), terms=self._terms)
        if not decision.changed:
            return False
        ended = replace(decision.run, version=run.version + 1, write_id=self._services.ids.token())
        begun = Moment.of(self._services.clock)
        if not await self._commit(ended, Replaces(version=run.version, submission=run.submission)):
            return False
        tell(ended, by_workflow=self._services.settings.workflow_metrics)
        aftermath = Aftermath(self._services)
        for effect in decision.effects:
            if not isinstance(effect, StartAttempt):  # nothing is begun but by a holder
                aftermath.follow(ended, effect, committed=begun)
        await aftermath.done()
        return True

    async def _commit(self, run: Run, condition: Replaces) -> bool:
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
