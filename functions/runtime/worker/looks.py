"""Looks at maps that go on elsewhere, by whoever was rung for them: no claim, and no worker held (R4, R9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from functions.engine.decide import decide
from functions.engine.effects import StartAttempt
from functions.engine.errors import Conflict
from functions.engine.events import AttemptFailed, MapEnded, MapRang, MapSeen, MapThrottled
from functions.engine.ports import Moment, Replaces
from functions.engine.run import Run
from functions.engine.terms import Terms
from functions.runtime.aftermath import Aftermath
from functions.runtime.maps import Maps
from functions.runtime.wiring import Services
from functions.runtime.workflows import WorkflowCache

Sight = MapSeen | MapThrottled | MapEnded | AttemptFailed
"""What a look at a map found."""


class Looks:
    """Looks at the open maps of runs that nobody holds, and tells those who hold one of its end."""

    def __init__(self, services: Services, workflows: WorkflowCache) -> None:
        self._services = services
        self._workflows = workflows
        self._maps = Maps(services)

    async def at(self, run: Run, steps: Sequence[str], *, rang: str | None = None) -> list[Sight]:
        """What becomes of these maps, of which one may have rung.

        Raises an `InfrastructureError` when that can't be known now.
        """
        workflow = await self._workflows.of(run)
        return [await self._maps.look(run, workflow, step, rang=step == rang) for step in steps]

    async def note(self, run: Run, news: Sequence[MapSeen | MapThrottled | MapRang], terms: Terms) -> Run | None:
        """Commit what was heard of maps without taking the run; the record that stands instead, if it was replaced.

        Raises an `InfrastructureError` when it is not known to be done; doing it again does no harm.
        """
        workflow = await self._workflows.of(run)
        decision = decide(run, workflow, news, self._services.clock.now(), terms=terms)
        if not decision.changed:
            return None
        noted = replace(decision.run, version=run.version + 1, write_id=self._services.ids.token())
        begun = Moment.of(self._services.clock)
        try:
            await self._services.runs.put(
                noted, Replaces(version=run.version, submission=run.submission), now=self._services.clock.now()
            )
        except Conflict as conflict:
            current: Run | None = conflict.current
            return current
        aftermath = Aftermath(self._services)
        for effect in decision.effects:
            if not isinstance(effect, StartAttempt):  # nothing is begun but by a holder
                aftermath.follow(noted, effect, committed=begun)
        await aftermath.done()
        return None
