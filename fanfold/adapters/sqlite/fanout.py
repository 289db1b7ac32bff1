"""Map executions in a SQLite file: local tasks work on their batches, and go on where a killed process left off."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from fanfold.adapters.batches import Work, end_of, work_through
from fanfold.adapters.packing import to_ms
from fanfold.adapters.sqlite.blobs import SqliteBlobs
from fanfold.adapters.sqlite.database import Database
from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import Clock, Execution, WorkQueue

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often the process that works on executions looks for those that another process started or left behind."""


class SqliteFanOut:
    """A `FanOut`. Any process starts executions; the one that runs `work_on` works on them.

    A batch that a killed process had begun is called again: its record is put once, whoever puts it.
    """

    def __init__(self, database: Database, clock: Clock, blobs: SqliteBlobs, queue: WorkQueue) -> None:
        self._database = database
        self._clock = clock
        self._blobs = blobs
        self._queue = queue
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = asyncio.Event()

    async def start(self, execution: Execution) -> bool:
        """See `FanOut.start`."""
        row = (execution.name, to_ms(self._clock.now()), json.dumps(asdict(execution)))

        def insert(connection: sqlite3.Connection) -> bool:
            connection.execute(
                "INSERT INTO executions (name, state, begun_at, execution) VALUES (?, 'open', ?, ?)"
                " ON CONFLICT DO NOTHING",
                row,
            )
            return _state(connection, execution.name)[0] == "open"

        going = await self._database.write(insert)
        self._started.set()
        return going

    async def going(self, execution: Execution) -> bool:
        """See `FanOut.going`."""
        return (await self._database.read(lambda connection: _state(connection, execution.name)))[0] == "open"

    async def throttled(self, execution: Execution) -> bool:
        """See `FanOut.throttled`."""
        return await self._database.read(lambda connection: _state(connection, execution.name)) == ("ended", True)

    async def stop(self, execution: Execution) -> None:
        """See `FanOut.stop`. A task of another process goes on to the end of its batches and tells nobody."""
        if await self._end(execution.name, "stopped"):
            task = self._tasks.pop(execution.name, None)
            if task is not None:
                task.cancel()
            await self._tell(execution)

    async def work_on(self, work: Work) -> None:
        """Work on what is open until cancelled: `work` is the fan-out function. One process of a file does."""
        try:
            while True:
                self._started.clear()
                for name, execution in await self._open():
                    if name not in self._tasks:
                        self._tasks[name] = asyncio.create_task(self._run(execution, work), name=name)
                        self._tasks[name].add_done_callback(lambda task: self._tasks.pop(task.get_name(), None))
                # Nothing that is committed can be missed: what is started while we look sets the event again.
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._started.wait()
                except TimeoutError:
                    continue
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, execution: Execution, work: Work) -> None:
        try:
            data = await self._blobs.read(execution.batches)
            batches: list[Mapping[str, int]] = [] if data is None else json.loads(data)
            refused = await work_through(execution, batches, work)
            if await self._end(execution.name, "ended", refused=refused):
                await self._tell(execution)
        except InfrastructureError:
            _log.exception("the execution %s goes on later", execution.name)
            await asyncio.sleep(LOOK_SECONDS)

    async def _open(self) -> list[tuple[str, Execution]]:
        def find(connection: sqlite3.Connection) -> list[tuple[str, Execution]]:
            rows: list[tuple[str, str]] = connection.execute(
                "SELECT name, execution FROM executions WHERE state = 'open' ORDER BY begun_at"
            ).fetchall()
            return [(name, Execution(**json.loads(text))) for name, text in rows]

        try:
            return await self._database.read(find)
        except InfrastructureError:
            _log.exception("the open executions could not be read")
            return []

    async def _end(self, name: str, state: str, *, refused: bool = False) -> bool:
        """Whether this ended it: it was open."""

        def update(connection: sqlite3.Connection) -> bool:
            text = "UPDATE executions SET state = ?, refused = ? WHERE name = ? AND state = 'open'"
            return connection.execute(text, (state, refused, name)).rowcount == 1

        return await self._database.write(update)

    async def _tell(self, execution: Execution) -> None:
        queue, wake = end_of(execution)
        try:
            await self._queue.send(queue, wake)
        except InfrastructureError:
            _log.exception("the end of %s was not told; the run is looked at all the same", execution.name)


def _state(connection: sqlite3.Connection, name: str) -> tuple[str, bool]:
    row = connection.execute("SELECT state, refused FROM executions WHERE name = ?", (name,)).fetchone()
    return ("", False) if row is None else (str(row[0]), bool(row[1]))
