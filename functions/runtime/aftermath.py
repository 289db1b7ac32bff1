"""What follows a commit beside the run itself: wakes and returned places. Lost ones are healed by the sweeper."""

from __future__ import annotations

import asyncio

from functions.engine.effects import ReturnPlace, Ring
from functions.engine.errors import InfrastructureError, Unanswered
from functions.engine.run import Run
from functions.runtime.rings import ring
from functions.runtime.telemetry import Metric, count, logger
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

    def follow(self, run: Run, effect: Ring | ReturnPlace, *, committed: float) -> None:
        """Begin the effect of a commit, made at `committed` on the monotonic clock or a little later."""
        call = self._ring(run, effect) if isinstance(effect, Ring) else self._return(run, effect, committed)
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Wait until all are through: none outlives the run's loop."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def abandon(self) -> None:
        """Give up what is not through: there is no time for it."""
        for task in self._tasks:
            task.cancel()

    async def _ring(self, run: Run, effect: Ring) -> None:
        try:
            await ring(self._services, run, effect.at)
        except InfrastructureError as error:
            logger().warning("a wake was not sent; the sweeper rings", extra={"run_id": run.id, "error": str(error)})

    async def _return(self, run: Run, effect: ReturnPlace, committed: float) -> None:
        why = "its commit was known too late"
        clock = self._services.clock
        # Asked before each try: the process may have been frozen between two.
        while clock.monotonic() < committed + RETURN_SECONDS:
            try:
                return await self._services.places.give_back(effect.class_name, effect.place)
            except Unanswered as error:
                # It may have been done; done twice it would let one run too many in.
                why = str(error)
                break
            except InfrastructureError as error:
                why = str(error)
                await clock.sleep(PAUSE_SECONDS)
        count(Metric.PLACES_LEAKED)
        return logger().warning(
            "a queue place was not returned; the sweeper heals it", extra={"run_id": run.id, "error": why}
        )
