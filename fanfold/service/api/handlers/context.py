"""The context of API calls: the services, and this process's caches and limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from fanfold.engine.errors import InfrastructureError, NotFound
from fanfold.engine.ports import RUN_ID, RunKey
from fanfold.engine.record.run import Run
from fanfold.service.api.access import SubmitRate
from fanfold.service.api.control import Control
from fanfold.service.api.forking import Forker
from fanfold.service.api.request_models import MAX_WAIT_SECONDS
from fanfold.service.api.submit import Submitter
from fanfold.service.api.tickets import TicketOffice
from fanfold.service.telemetry.reporting import logger
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache

FIRST_POLL_SECONDS = 0.05
LAST_POLL_SECONDS = 1.0
SEAT_MARGIN_SECONDS = 5.0
"""A seat lasts so much longer than its call's wait: for the last read, and for clock skew."""


class Waiters:
    """Counts this process's waiting calls against their limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting = 0

    def enter(self) -> bool:
        """Take a free place, if there is one."""
        if self._waiting >= self._most:
            return False
        self._waiting += 1
        return True

    def leave(self) -> None:
        """Release the place."""
        self._waiting -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One per process."""

    services: Services
    workflows: WorkflowCache
    submitter: Submitter
    control: Control
    forker: Forker
    rate: SubmitRate
    waiters: Waiters
    tickets: TicketOffice

    async def run(self, tenant: str, run_id: str) -> Run:
        """A run's record, strongly consistent. Raises `NotFound`, for another tenant's run too."""
        found = None
        # A text that can't be an id is not read, because it may be no valid key.
        if RUN_ID.fullmatch(run_id):
            found = await self.services.runs.get(RunKey(tenant=tenant, run_id=run_id), now=self.services.clock.now())
        if found is None:
            raise NotFound(f"there is no run {run_id[:100]!r}")
        return found

    async def run_once(self, tenant: str, run_id: str, *, until: Callable[[Run], bool], wait_seconds: float) -> Run:
        """The run as soon as `until` is true of it, or after `wait_seconds` (at most 25).

        Polls the record after 50 ms, doubling to 1 s. With `max_waiters` calls waiting in the process, or
        `max_watchers` in the deployment, the call does not wait.
        """
        clock = self.services.clock
        end = clock.monotonic() + min(wait_seconds, MAX_WAIT_SECONDS)
        run = await self.run(tenant, run_id)
        if until(run) or wait_seconds <= 0 or not self.waiters.enter():
            return run
        try:
            async with self._seat(end - clock.monotonic()) as seated:
                pause = FIRST_POLL_SECONDS
                while seated and not until(run):
                    left = end - clock.monotonic()
                    if left <= 0:
                        break
                    await self._pause(RunKey(tenant=tenant, run_id=run_id), min(pause, left))
                    pause = min(LAST_POLL_SECONDS, pause * 2)
                    run = await self.run(tenant, run_id)
        finally:
            self.waiters.leave()
        return run

    async def _pause(self, key: RunKey, seconds: float) -> None:
        if self.services.until_written is not None:
            await self.services.until_written(key, seconds)
        else:
            await self.services.clock.sleep(seconds)

    @asynccontextmanager
    async def _seat(self, seconds: float) -> AsyncIterator[bool]:
        """A seat for so long, or None. A failure is no error: the call then does not wait."""
        seats, now = self.services.seats, self.services.clock.now()
        seat = None
        try:
            until = now + timedelta(seconds=seconds + SEAT_MARGIN_SECONDS)
            seat = await seats.take(self.services.ids.token(), now=now, until=until)
        except InfrastructureError as error:
            logger().warning("no seat could be taken: a call does not wait", extra={"error": repr(error)})
        try:
            yield seat is not None
        finally:
            if seat is not None:
                try:
                    await seats.leave(seat)
                except InfrastructureError as error:
                    logger().warning("a seat could not be released: it expires soon", extra={"error": repr(error)})


def context_of(services: Services) -> Context:
    """A new context on these services."""
    settings = services.settings
    workflows = WorkflowCache(services.catalog, settings.classes, aside=services.aside)
    submitter = Submitter(services, workflows)
    return Context(
        services=services,
        workflows=workflows,
        submitter=submitter,
        control=Control(services, workflows),
        forker=Forker(services, workflows, submitter),
        rate=SubmitRate(settings.submits_per_minute),
        waiters=Waiters(settings.max_waiters),
        tickets=TicketOffice(services.secrets, services.clock, services.ids),
    )
