"""What the queues in a file do beyond what every queue promises: turns between tenants, and several processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanfold.adapters.sqlite import Database, SqliteQueue
from fanfold.engine.record.messages import Wake
from fanfold.service.clock import SystemClock
from tests.support.builders import LANE, a_wake


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "fanfold.db")
    yield opened
    opened.close()


async def tenants(queue: SqliteQueue, count: int) -> list[str]:
    """Whose messages come, one after the other; none of them ends."""
    found = []
    for _ in range(count):
        (received,) = await queue.receive(LANE, limit=1, wait_seconds=0, visibility_seconds=60)
        assert isinstance(received.message, Wake)
        found.append(received.message.tenant)
    return found


async def test_a_tenants_backlog_delays_no_other_tenant(database: Database) -> None:
    queue = SqliteQueue(database, SystemClock())
    for number in range(20):
        await queue.send(LANE, a_wake(number, tenant="busy"))
    await queue.send(LANE, a_wake(30, tenant="late"))
    await queue.send(LANE, a_wake(31, tenant="later"))
    assert await tenants(queue, 6) == ["busy", "late", "later", "busy", "busy", "busy"]


async def test_tenants_with_as_much_under_way_come_in_turn(database: Database) -> None:
    queue = SqliteQueue(database, SystemClock())
    for number in range(6):
        await queue.send(LANE, a_wake(number, tenant="a" if number < 3 else "b"))
    assert await tenants(queue, 6) == ["a", "b", "a", "b", "a", "b"]


async def test_a_poll_sees_what_another_process_sends(database: Database) -> None:
    mine, other = SqliteQueue(database, SystemClock(), look_seconds=0.02), SqliteQueue(database, SystemClock())
    poll = asyncio.create_task(mine.receive(LANE, limit=1, wait_seconds=10, visibility_seconds=60))
    await asyncio.sleep(0.05)
    await other.send(LANE, a_wake())
    (received,) = await asyncio.wait_for(poll, timeout=5)
    assert received.message == a_wake()


async def test_two_processes_never_take_the_same_message(database: Database) -> None:
    queues = [SqliteQueue(database, SystemClock(), look_seconds=0.02) for _ in range(4)]
    for number in range(100):
        await queues[0].send(LANE, a_wake(number))

    async def take(queue: SqliteQueue) -> list[str]:
        found: list[str] = []
        while messages := await queue.receive(LANE, limit=3, wait_seconds=0, visibility_seconds=60):
            found += [message.message_id for message in messages]
        return found

    taken = [message_id for found in await asyncio.gather(*map(take, queues)) for message_id in found]
    assert len(taken) == len(set(taken)) == 100


async def test_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    first = Database(tmp_path / "again.db")
    await SqliteQueue(first, SystemClock()).send(LANE, a_wake())
    first.close()
    second = Database(tmp_path / "again.db")
    (received,) = await SqliteQueue(second, SystemClock()).receive(LANE, limit=1, wait_seconds=0, visibility_seconds=60)
    assert received.message == a_wake()
    second.close()
