"""The composition of the ports on one SQLite file."""

from __future__ import annotations

import asyncio
import time
from functools import cache

from fanfold.adapters.aws.run_items import head_key
from fanfold.adapters.memory import MemorySeats
from fanfold.adapters.sqlite import Database, SqliteBlobs, SqliteFanOut, SqliteQueue, SqliteTable
from fanfold.service.clock import SystemClock, SystemIds
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services, on_table

LOOK_SECONDS = 0.25
"""How often a poll looks for what another process of the machine sent; what its own process sends, it sees at once."""


@cache
def database(path: str) -> Database:
    """The file, opened once in a process."""
    return Database(path)


def file_services(settings: Settings) -> Services:
    """The ports on the file that `settings.database` names. Raises what `Database` does."""
    file, clock, ids = database(settings.database), SystemClock(), SystemIds()
    table = SqliteTable(file)
    kept = on_table(table, settings, clock, ids)
    # One process answers calls, so it counts those that wait by itself.
    kept["seats"] = MemorySeats(settings.max_watchers)
    queue = SqliteQueue(file, clock, look_seconds=LOOK_SECONDS)
    blobs = SqliteBlobs(file, clock, base_url=settings.public_url, secrets=kept["secrets"], ids=ids)
    return Services(
        settings=settings,
        **kept,
        queue=queue,
        blobs=blobs,
        fan_out=SqliteFanOut(file, clock, blobs, queue),
        clock=clock,
        ids=ids,
        cpu=time.thread_time,
        aside=asyncio.to_thread,
        until_written=lambda key, seconds: table.until_written(head_key(key.tenant, key.run_id), seconds=seconds),
    )
