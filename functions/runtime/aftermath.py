"""What follows a commit beside the run itself: wakes and returned places. Lost ones are healed by the sweeper."""

from __future__ import annotations

import asyncio

from functions.engine.effects import ReturnPlace, Ring
from functions.engine.errors import InfrastructureError, Unanswered
from functions.engine.run import Run
from functions.runtime.rings import ring
from functions.runtime.telemetry import logger
from functions.runtime.wiring import Services

RETURN_SECONDS = 60.0
"""A place is returned within this time after its commit or not at all: place repair relies on it (R6)."""

PAUSE_SECONDS = 1.0
"""Pause between tries to return a place that was refused."""


class Aftermath:
    """The side effects of one run's commits, performed beside it and awaited at its end."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, run: Run, effect: Ring | ReturnPlace) -> None:
        """Begin the effect of a commit just made."""
        call = self._ring(run, effect) if isinstance(effect, Ring) else self._return(run, effect)
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Wait until all are through: none outlives the run's loop."""
        await asyncio.gather(*self._tasks)

    async def _ring(self, run: Run, effect: Ring) -> None:
        try:
            await ring(self._services, run, effect.at)
        except InfrastructureError as error:
            logger().warning("a wake was not sent; the sweeper rings", extra={"run_id": run.id, "error": str(error)})

    async def _return(self, run: Run, effect: ReturnPlace) -> None:
        until = self._services.clock.monotonic() + RETURN_SECONDS
        while True:
            try:
                return await self._services.places.give_back(effect.class_name, effect.place)
            except Unanswered as error:
                # It may have been done; done twice it would let one run too many in.
                why = str(error)
            except InfrastructureError as error:
                if self._services.clock.monotonic() + PAUSE_SECONDS < until:
                    await self._services.clock.sleep(PAUSE_SECONDS)
                    continue
                why = str(error)
            return logger().warning(
                "a queue place was not returned; the sweeper heals it", extra={"run_id": run.id, "error": why}
            )
