"""A run's record as readers see it, whole: what is live in the head, and what its head names elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fanfold.engine.errors import NotFound, Unavailable, Unreadable
from fanfold.engine.ports import RunKey
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run
from fanfold.engine.record.sealing import merged
from fanfold.service.wiring import Services

T = TypeVar("T")

READS = 3
"""How often a record that changes under the reader is read anew."""


async def page(services: Services, run: Run, *, after: int, limit: int) -> tuple[Run, list[Entry]]:
    """Up to `limit` of a run's events after `after`, and the record they were read by.

    A read where the head has them; where they are sealed away, a query or three more, however long the run is.
    Raises `NotFound` when the run's lifetime ended between the reads.
    """

    async def read(run: Run) -> list[Entry]:
        sealed: Sequence[Entry] = ()
        if after < run.sealed.last_seq:
            sealed = await services.runs.sealed_entries(run, after=after, limit=limit)
        return [*sealed, *(entry for entry in run.journal if entry.seq > after)][:limit]

    return await _standing(services, run, read)


async def whole(services: Services, run: Run) -> Run:
    """The run with everything its record says of it: a read more only where some of it is sealed (R8).

    Raises `NotFound` when the run's lifetime ended between the reads.
    """

    async def read(run: Run) -> Run:
        return merged(run, await services.runs.segments(run))

    return (await _standing(services, run, read))[1]


async def _standing(services: Services, run: Run, read: Callable[[Run], Awaitable[T]]) -> tuple[Run, T]:
    """What is read by a record, and that record: the one given, or one that stands when parts of that are gone."""
    for _ in range(READS):
        try:
            return run, await read(run)
        except NotFound:
            # The record was replaced by another submission's, or is gone: go by what stands now.
            key = RunKey(tenant=run.tenant, run_id=run.id)
            recorded = await services.runs.get(key, now=services.clock.now())
            if recorded is None:
                raise
            if (recorded.submission, recorded.version) == (run.submission, run.version):
                # Nobody has written it: what it names is not there any more.
                raise Unreadable(f"a part of the record of run {run.id} is lost") from None
            run = recorded
    raise Unavailable(f"the record of run {run.id} changed under its reader, again and again")
