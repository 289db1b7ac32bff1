"""Who holds a run until when (R3, R11)."""

from __future__ import annotations

from datetime import datetime

from functions.engine.run import Run, Status
from functions.engine.terms import Terms


def held(run: Run, now: datetime, terms: Terms) -> bool:
    """Whether a worker may still be working on the run.

    A lease counts until `skew` after its end, for clocks that differ; one that ends more than two
    leases ahead was written by a clock gone wrong and counts as over. Safety rests on the version,
    never on this.
    """
    if run.status not in (Status.RUNNING, Status.PAUSED) or run.lease_until is None:
        return False
    return now <= run.lease_until + terms.skew and run.lease_until <= now + 2 * terms.lease


def abandoned(run: Run, now: datetime, terms: Terms) -> bool:
    """Whether the run's worker died with it in hands."""
    return run.status is Status.RUNNING and not held(run, now, terms)
