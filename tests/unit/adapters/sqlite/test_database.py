"""One SQLite file: what a commit promises, alone, among others, and when the process or the disk gives out."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanfold.adapters.sqlite import database as module
from fanfold.adapters.sqlite.database import LAYOUT, Database
from fanfold.engine.errors import NewerSchema, Unavailable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fanfold.db"


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    opened = Database(file)
    yield opened
    opened.close()


async def put(database: Database, key: str, data: bytes = b"1") -> None:
    await database.write(lambda c: c.execute("INSERT INTO payloads VALUES (?, 0, ?)", (key, data)))


async def keys(database: Database) -> set[str]:
    return await database.read(lambda c: {key for (key,) in c.execute("SELECT key FROM payloads")})


async def test_what_was_written_is_read_by_everybody(database: Database, file: Path) -> None:
    await put(database, "a")
    other = Database(file)
    assert await keys(database) == await keys(other) == {"a"}
    other.close()


async def test_a_write_that_fails_undoes_itself_and_no_other_that_shares_its_commit(database: Database) -> None:
    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO payloads VALUES ('half', 0, '1')")
        raise KeyError("mine")

    outcomes = await asyncio.gather(
        put(database, "a"), database.write(wrong), put(database, "a"), put(database, "b"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), KeyError, Unavailable, type(None)]
    assert await keys(database) == {"a", "b"}


async def test_writes_that_wait_together_share_commits(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    carry_out = Database._carry_out

    def counted(self: Database, connection: sqlite3.Connection, jobs: list[object]) -> None:
        batches.append(len(jobs))
        carry_out(self, connection, jobs)  # type: ignore[arg-type]  # what it was given

    monkeypatch.setattr(Database, "_carry_out", counted)
    await asyncio.gather(*(put(database, str(number)) for number in range(300)))
    assert sum(batches) == 300
    assert max(batches) <= module.TOGETHER
    assert len(batches) < 100, "a commit waits for the disk"


async def test_a_full_disk_is_an_error_and_nothing_is_half_written(database: Database) -> None:
    def shrink(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")

    await database.write(shrink)
    with pytest.raises(Unavailable, match="full"):
        await put(database, "big", bytes(1_000_000))
    await put(database, "small")
    assert await keys(database) == {"small"}


async def test_a_file_that_another_process_holds_is_unavailable_in_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.05)
    database = Database(file)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await put(database, "a")
    assert await keys(database) == set(), "reads go on beside a writer"
    other.execute("ROLLBACK")
    other.close()
    await put(database, "a")
    database.close()


def test_a_file_of_newer_code_is_not_touched(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(NewerSchema, match=f"layout {LAYOUT + 1}"):
        Database(file)
    assert sqlite3.connect(file).execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    assert len(file.read_bytes()) == len(before)


@pytest.mark.parametrize("text", [b"no database at all, but some other file" * 100, None])
def test_what_is_no_database_is_unavailable(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "other"
    path.mkdir() if text is None else path.write_bytes(text)
    with pytest.raises(Unavailable):
        Database(path)


WRITER = """
import asyncio, sys
from fanfold.adapters.sqlite.database import Database

async def main() -> None:
    database = Database(sys.argv[1])

    async def put(key: str) -> None:
        await database.write(lambda c: c.execute("INSERT INTO payloads VALUES (?, 0, '1')", (key,)))
        print(key, flush=True)

    for start in range(0, 100_000, 5):
        await asyncio.gather(*(put(f"{sys.argv[2]}{number}") for number in range(start, start + 5)))

asyncio.run(main())
"""


def test_what_was_acknowledged_is_there_after_kill_9(file: Path) -> None:
    Database(file).close()
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), name], stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    acknowledged: set[str] = set()
    for writer in writers:
        assert writer.stdout is not None
        acknowledged |= {writer.stdout.readline().strip() for _ in range(40)}
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
    for writer in writers:
        rest, _ = writer.communicate()
        acknowledged |= {line for line in rest.split("\n")[:-1] if line}
    database = Database(file)
    assert acknowledged <= asyncio.run(keys(database))
    assert {key[0] for key in acknowledged} == {"a", "b"}, "two processes wrote one file"
    database.close()
