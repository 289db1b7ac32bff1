"""Looks at distributed maps, by whoever got a wake for one: no claim, and no worker held (R4, R9)."""

from __future__ import annotations

from collections.abc import Sequence

from fanfold.engine.ports import Moment
from fanfold.engine.record.run import Run
from fanfold.engine.rules.decide import decide
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import AttemptFailed, MapCompletionSignalled, MapEnded, MapStillRunning, MapThrottled
from fanfold.service.commit import Commit, Committed, by_write_id, follow, next_record, put
from fanfold.service.maps import Maps
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache

Sight = MapStillRunning | MapThrottled | MapEnded | AttemptFailed
"""What a look at a map found."""


class MapPolling:
    """Looks at the open maps of runs that nobody holds, and tells those who hold one of its end."""

    def __init__(self, services: Services, workflows: WorkflowCache) -> None:
        self._services = services
        self._workflows = workflows
        self._maps = Maps(services)

    async def at(self, run: Run, steps: Sequence[str], *, signalled: str | None = None) -> list[Sight]:
        """What becomes of these maps, of which one may have rung.

        Raises an `InfrastructureError` when that can't be known now.
        """
        workflow = await self._workflows.of(run)
        return [await self._maps.look(run, workflow, step, signalled=step == signalled) for step in steps]

    async def note(
        self, run: Run, news: Sequence[MapStillRunning | MapThrottled | MapCompletionSignalled], limits: EngineLimits
    ) -> Run | None:
        """Commit what was heard of maps without taking the run; the record that stands instead, if it was replaced.

        Raises an `InfrastructureError` when it is not known to be done; doing it again does no harm.
        """
        workflow = await self._workflows.of(run)
        decision = decide(run, workflow, news, self._services.clock.now(), limits=limits)
        if not decision.changed:
            return None
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
            return None
        if made.error is not None:
            raise made.error
        return made.record
