"""Reads a whole run: its record, and the sealed segments that the record names."""

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
"""How often a record that changes meanwhile is read again."""


async def page(services: Services, run: Run, *, after: int, limit: int) -> tuple[Run, list[Entry]]:
    """Up to `limit` of a run's events after `after`, and the record they were read by.

    One read if the record has them. Sealed events take up to three queries more, however long the run is.
    Raises `NotFound` when the run's lifetime ended between the reads.
    """

    async def read(run: Run) -> list[Entry]:
        sealed: Sequence[Entry] = ()
        if after < run.sealed.last_seq:
            sealed = await services.runs.sealed_entries(run, after=after, limit=limit)
        return [*sealed, *(entry for entry in run.journal if entry.seq > after)][:limit]

    return await _standing(services, run, read)


async def whole(services: Services, run: Run) -> Run:
    """The whole run, with one more read if parts of it are sealed (R8).

    Raises `NotFound` when the run's lifetime ended between the reads.
    """

    async def read(run: Run) -> Run:
        return merged(run, await services.runs.segments(run))

    return (await _standing(services, run, read))[1]


async def _standing(services: Services, run: Run, read: Callable[[Run], Awaitable[T]]) -> tuple[Run, T]:
    """Read parts that a record names. Returns them and the record: the given one, or a newer one if parts are gone."""
    for _ in range(READS):
        try:
            return run, await read(run)
        except NotFound:
            # Another submission's record has replaced it, or it is gone: continue with the current one.
            key = RunKey(tenant=run.tenant, run_id=run.id)
            recorded = await services.runs.get(key, now=services.clock.now())
            if recorded is None:
                raise
            if (recorded.submission, recorded.version) == (run.submission, run.version):
                # Nobody has written the record, so a part that it names is lost.
                raise Unreadable(f"a part of the record of run {run.id} is lost") from None
            run = recorded
    raise Unavailable(f"the record of run {run.id} changed under its reader, again and again")
