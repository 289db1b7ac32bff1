"""Map executions in a file: who works on them, what a restart leaves, and how the run hears of the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fanfold.adapters.batches import NoRoom
from fanfold.adapters.memory import MemorySecrets
from fanfold.adapters.sqlite import Database, SqliteBlobs, SqliteFanOut, SqliteQueue
from fanfold.engine.record.messages import RESUME, QueueName, Wake
from fanfold.service.clock import SystemClock
from tests.contract.test_maps import EXECUTION
from tests.support.clock import SeededIds

RESUMING = QueueName(class_name="model", role=RESUME)


class Deployment:
    """One process's view of a file."""

    def __init__(self, database: Database) -> None:
        clock = SystemClock()
        self.queue = SqliteQueue(database, clock)
        self.blobs = SqliteBlobs(database, clock, base_url="", secrets=MemorySecrets(), ids=SeededIds())
        self.fan_out = SqliteFanOut(database, clock, self.blobs, self.queue)
        self.called: list[tuple[int, int]] = []

    async def plan(self, *batches: tuple[int, int]) -> None:
        data = json.dumps([{"from": first, "to": end} for first, end in batches]).encode()
        await self.blobs.put(EXECUTION.batches, data)

    @asynccontextmanager
    async def working(self, fails: Callable[[int, int], Exception | None] = lambda *_: None) -> AsyncIterator[None]:
        async def work(event: Mapping[str, Any]) -> None:
            batch = (event["batch"]["from"], event["batch"]["to"])
            self.called.append(batch)
            if (error := fails(*batch)) is not None:
                raise error

        task = asyncio.create_task(self.fan_out.work_on(work))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def told(self) -> list[Any]:
        """The messages that tell of ends."""
        received = await self.queue.receive(RESUMING, limit=10, wait_seconds=5, visibility_seconds=60)
        return [one.message for one in received]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "fanfold.db")
    yield opened
    opened.close()


async def test_batches_are_worked_on_and_the_run_is_told(database: Database) -> None:
    it = Deployment(database)
    await it.plan((0, 3), (3, 6))
    async with it.working():
        assert await it.fan_out.start(EXECUTION)
        assert await it.told() == [
            Wake(
                tenant="acme",
                run_id="r1",
                submission="s1",
                class_name="model",
                map_step="files",
            )
        ]
    assert sorted(it.called) == [(0, 3), (3, 6)]
    assert not await it.fan_out.going(EXECUTION)
    assert not await it.fan_out.start(EXECUTION)


async def test_an_execution_that_a_killed_process_left_is_begun_again(database: Database) -> None:
    before = Deployment(database)
    await before.plan((0, 2))
    await before.fan_out.start(EXECUTION)  # and nobody works on it any more
    after = Deployment(database)
    async with after.working():
        assert len(await after.told()) == 1
    assert after.called == [(0, 2)]


async def test_a_batch_that_fails_is_called_for_each_of_its_items_and_costs_no_other(database: Database) -> None:
    it = Deployment(database)
    await it.plan((0, 2), (2, 4))
    async with it.working(lambda first, end: RuntimeError() if (first, end) == (0, 2) else None):
        await it.fan_out.start(EXECUTION)
        assert len(await it.told()) == 1
    assert sorted(it.called) == [(0, 1), (0, 2), (0, 2), (1, 2), (2, 4)]
    assert not await it.fan_out.throttled(EXECUTION)


async def test_an_execution_that_found_no_room_says_so(database: Database) -> None:
    it = Deployment(database)
    await it.plan((0, 2))
    async with it.working(lambda *_: NoRoom()):
        await it.fan_out.start(EXECUTION)
        assert len(await it.told()) == 1
    assert await it.fan_out.throttled(EXECUTION)


async def test_one_that_is_stopped_tells_the_run_and_is_not_begun_again(database: Database) -> None:
    it = Deployment(database)
    await it.plan((0, 2))
    await it.fan_out.start(EXECUTION)
    await it.fan_out.stop(EXECUTION)
    assert len(await it.told()) == 1
    async with it.working():
        await asyncio.sleep(0.05)
    assert it.called == []


async def test_an_execution_whose_batches_are_gone_ends_all_the_same(database: Database) -> None:
    it = Deployment(database)
    async with it.working():
        await it.fan_out.start(replace(EXECUTION, batches="gone"))
        assert len(await it.told()) == 1


async def test_payloads_expire_and_their_urls_end(database: Database) -> None:
    it = Deployment(database)
    ref = await it.blobs.put("acme/a", b"1")
    url = await it.blobs.presign(ref, seconds=-2)
    _, _, query = url.partition("?")
    given = dict(part.split("=") for part in query.split("&"))
    assert await it.blobs.presigned("acme/a", **given) is None, "over"
    assert await it.blobs.presigned("acme/a", until="99999999999", signature=given["signature"]) is None, "forged"
    assert await it.blobs.presigned("acme/a", until="soon", signature="x") is None
    later = datetime.now(UTC) + timedelta(days=2)
    assert await it.blobs.expire(later, kept=timedelta(days=3)) == 0
    assert await it.blobs.expire(later, kept=timedelta(days=1)) == 1
    assert await it.blobs.read("acme/a") is None
