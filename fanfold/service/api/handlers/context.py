"""What every call of the API stands on: the services, and what this process remembers between calls."""

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
"""A seat is kept so much longer than its call means to wait: for the last read, and clocks that differ."""


class Waiters:
    """How many calls of this process hold their answer back, of how many that may."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting = 0

    def enter(self) -> bool:
        """Take one of the seats, if there is one."""
        if self._waiting >= self._most:
            return False
        self._waiting += 1
        return True

    def leave(self) -> None:
        """Give the seat back."""
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
        # What can't be an id is not asked for: it might not even be a key.
        if RUN_ID.fullmatch(run_id):
            found = await self.services.runs.get(RunKey(tenant=tenant, run_id=run_id), now=self.services.clock.now())
        if found is None:
            raise NotFound(f"there is no run {run_id[:100]!r}")
        return found

    async def run_once(self, tenant: str, run_id: str, *, until: Callable[[Run], bool], wait_seconds: float) -> Run:
        """The run as soon as `until` holds of it, or as it is after `wait_seconds` (at most 25).

        Polls the head, 50 ms doubling to 1 s; a process with `max_waiters` waiting, and a deployment with
        `max_watchers`, answers at once.
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
        """A seat for so long, if there is one: to do without is no error, whatever the reason."""
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
                    logger().warning("a seat could not be left: it is free again soon", extra={"error": repr(error)})


def context_of(services: Services) -> Context:
    """A context on these services, with nothing remembered yet."""
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
