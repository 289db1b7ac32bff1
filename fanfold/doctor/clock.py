"""This machine's clock against AWS's."""

from __future__ import annotations

from collections.abc import Iterator

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.service.wiring import Services
from fanfold.service.worker.clockcheck import CLOCK_RESOLUTION, clock_off


def find(deployment: Deployment) -> Iterator[Finding]:
    """A clock that is further off than the skew a worker grants."""
    offset = deployment.ask(_offset)
    granted = max(deployment.settings.clock_skew_seconds, CLOCK_RESOLUTION)
    if offset is not None:
        yield Finding(
            what=f"This machine's clock is {abs(offset):.1f} s {'behind' if offset > 0 else 'ahead of'} AWS's;"
            f" {granted:g} s are granted.",
            why="A `fanfold worker` here refuses to work, and what is said here about time is off by as much. Lambda"
            " functions have AWS's clock.",
            fix="Set the clock by a time service (chronyd, systemd-timesyncd).",
        )


async def _offset(services: Services) -> float | None:
    await services.sweeper_state.get("sweep.cursor")  # any answer has the time in it
    return clock_off(services)


CHECK = Check(name="clock", looks_at="this machine's clock against AWS's", find=find)
