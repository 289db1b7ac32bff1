"""Who holds a run until when (R3, R11)."""

from __future__ import annotations

from datetime import datetime

from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.engine_limits import MAX_LEASE, EngineLimits


def held(run: Run, now: datetime, limits: EngineLimits) -> bool:
    """Whether a worker may still be working on the run.

    A lease counts until `skew` after its end, for clocks that differ; one that ends further ahead than
    two of the longest leases was written by a clock gone wrong and counts as over. How long leases are
    now says nothing about one that was taken before. Safety rests on the version, never on this.
    """
    if run.status not in (Status.RUNNING, Status.PAUSED) or run.lease_until is None:
        return False
    return now <= run.lease_until + limits.skew and run.lease_until <= now + 2 * MAX_LEASE


def abandoned(run: Run, now: datetime, limits: EngineLimits) -> bool:
    """Whether the run's worker died with it in hands."""
    return run.status is Status.RUNNING and not held(run, now, limits)
