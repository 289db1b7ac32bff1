"""One SQLite file: a thread that writes, threads that read, and one commit for all writes that wait together."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from fanfold.engine.errors import NewerSchema, Unanswered, Unavailable

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""What is done with a connection, inside a transaction. It must not begin or end one."""

LAYOUT: Final = 1
"""The number of the tables' layout, kept as the file's `user_version`: a file of a newer layout is not opened."""

TOGETHER: Final = 128
"""Writes that share a commit at most: a commit waits for the disk once, however many there are."""

BUSY_SECONDS: Final = 10.0
"""How long a write waits for one of another process."""

READERS: Final = 4
"""Threads that read beside the one that writes."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS items (
    pk TEXT NOT NULL, sk TEXT NOT NULL, lp, ls, dp, ds, x, attributes TEXT NOT NULL, PRIMARY KEY (pk, sk)
);
CREATE INDEX IF NOT EXISTS items_list ON items (lp, ls, pk, sk) WHERE lp IS NOT NULL;
CREATE INDEX IF NOT EXISTS items_due ON items (dp, ds, pk, sk) WHERE dp IS NOT NULL;
CREATE INDEX IF NOT EXISTS items_expiry ON items (x) WHERE x IS NOT NULL;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, tenant TEXT NOT NULL, visible_at INTEGER NOT NULL,
    body TEXT NOT NULL, receives INTEGER NOT NULL DEFAULT 0, receipt TEXT
);
CREATE INDEX IF NOT EXISTS messages_order ON messages (queue, tenant, visible_at, id);
CREATE INDEX IF NOT EXISTS messages_time ON messages (queue, visible_at, id);
CREATE TABLE IF NOT EXISTS payloads (key TEXT PRIMARY KEY, stored_at INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS payloads_age ON payloads (stored_at);
CREATE TABLE IF NOT EXISTS executions (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, refused INTEGER NOT NULL DEFAULT 0, begun_at INTEGER NOT NULL,
    execution TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS executions_open ON executions (state);
"""


class Database:
    """A SQLite file in WAL mode. What `write` returned from is on the disk (`synchronous=FULL`), kill -9 or not.

    Several processes may open the same file of one host; no file of a network share. Safe to use from several event
    loops. `close` it at the end. Raises `NewerSchema` for a file that newer code made, `Unavailable` for one that
    can't be opened.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._jobs: queue.SimpleQueue[tuple[Work[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        connection = self._connect()
        try:
            self._prepare(connection)
        except sqlite3.Error as error:
            connection.close()
            raise Unavailable(f"{self.path} can't be used: {error}") from error
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-read")
        self._writer = threading.Thread(target=self._write, args=(connection,), name="sqlite-write", daemon=True)
        self._writer.start()

    async def write(self, work: Work[T]) -> T:
        """Do this in a transaction; returns once it is on the disk. An exception undoes it, and nothing else.

        Raises `Unavailable` where nothing was done, `Unanswered` where the commit failed.
        """
        future: Future[T] = Future()
        self._jobs.put((work, future))
        return await asyncio.wrap_future(future)

    async def read(self, work: Work[T]) -> T:
        """Do this on what is committed, beside any writer. Raises `Unavailable`."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def close(self) -> None:
        """Finish the writes that wait, and close the file."""
        self._jobs.put(None)
        self._writer.join()
        self._readers.shutdown()
        for connection in self._opened:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        except sqlite3.Error as error:
            raise Unavailable(f"{self.path} can't be opened: {error}") from error
        with self._lock:
            self._opened.append(connection)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout > LAYOUT:
            raise NewerSchema(f"{self.path} has layout {layout}, this code reads up to {LAYOUT}")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version={LAYOUT}")

    def _read(self, work: Work[T]) -> T:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
            self._local.connection.execute("PRAGMA query_only=ON")
        try:
            return work(self._local.connection)
        except sqlite3.Error as error:
            raise Unavailable(f"{self.path} could not be read: {error}") from error

    def _write(self, connection: sqlite3.Connection) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            jobs = [job]
            last = False
            while len(jobs) < TOGETHER and not last:
                try:
                    more = self._jobs.get_nowait()
                except queue.Empty:
                    break
                last = more is None
                if more is not None:
                    jobs.append(more)
            self._carry_out(connection, jobs)
            if last:
                return

    def _carry_out(self, connection: sqlite3.Connection, jobs: list[tuple[Work[Any], Future[Any]]]) -> None:
        """All of them in one transaction, each as if it were alone."""
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            for _, future in jobs:
                _answer(future, None, Unavailable(f"{self.path} could not be written: {error}"))
            return
        for work, future in jobs:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                connection.execute("SAVEPOINT one")
                result = work(connection)
                connection.execute("RELEASE one")
                outcomes.append((future, result, None))
            except sqlite3.Error as error:
                unavailable = Unavailable(f"{self.path} could not be written: {error}")
                unavailable.__cause__ = error
                outcomes.append((future, None, unavailable))
                if not connection.in_transaction:  # a full disk ends the transaction, and what the others did in it
                    break
                _undo(connection)
            except BaseException as error:  # whatever it is, it is the caller's
                outcomes.append((future, None, error))
                _undo(connection)
        failed: BaseException | None = None
        if not connection.in_transaction:
            failed = Unavailable(f"{self.path} could not be written: the transaction was undone")
        else:
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                failed = Unanswered(f"{self.path} may not have been written: {error}")
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        if failed is not None:
            own = {id(future): failure for future, _, failure in outcomes if failure is not None}
            outcomes = [(future, None, own.get(id(future)) or failed) for _, future in jobs]
        for future, result, failure in outcomes:
            _answer(future, result, failure)


def _undo(connection: sqlite3.Connection) -> None:
    connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")


def _answer(future: Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
