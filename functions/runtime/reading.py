"""A run's record as readers see it, whole: what is live in the head, and what its head names elsewhere."""

from __future__ import annotations

from functions.engine.errors import NotFound, Unavailable
from functions.engine.journal import Entry
from functions.engine.ports import RunKey
from functions.engine.run import Run
from functions.engine.sealing import merged
from functions.runtime.wiring import Services

READS = 3
"""How often a record that changes under the reader is read anew."""


async def journal(services: Services, run: Run) -> tuple[Entry, ...]:
    """All of a run's events, from the first on, in order."""
    return (await whole(services, run)).journal


async def whole(services: Services, run: Run) -> Run:
    """The run with everything its record says of it: a read more only where some of it is sealed (R8).

    Raises `NotFound` when the run's lifetime ended between the reads.
    """
    for _ in range(READS):
        try:
            return merged(run, await services.runs.segments(run))
        except NotFound:
            # The record was replaced by another submission's, or is gone: go by what stands now.
            key = RunKey(tenant=run.tenant, run_id=run.id)
            standing = await services.runs.get(key, now=services.clock.now())
            if standing is None:
                raise
            run = standing
    raise Unavailable(f"the record of run {run.id} could not be read whole")
