"""The sweeper after an outage, and with a million runs: what it sends and what it asks stay bounded (R14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.ports import Bucket, DueKey, IfAbsent, IfVersion, IndexKey, RunKey
from fanfold.engine.record.messages import QueueName, Wake
from fanfold.engine.record.run import Run, Status
from fanfold.service.settings import ClassSettings
from fanfold.service.sweeper.active_scan import MAX_READ
from tests.support.builders import RESUMING, a_run, an_id, key_of
from tests.support.clock import START
from tests.support.sweeping import Swept

OVERDUE = 100_000
CAP = 1_000


def waiting(number: int, due_in: float, **given: Any) -> Run:
    due_at = START + timedelta(seconds=due_in)
    return a_run(number, status=Status.WAITING, version=3, epoch=1, owner="c" * 16, due_at=due_at, **given)


class Outage:
    """A backlog, the workers that come back to it, and a watch on every wake that is sent."""

    def __init__(self, it: Swept) -> None:
        self.it = it
        self.sent: list[tuple[str, int]] = []
        send = it.queue.send

        async def watched(queue: QueueName, message: Any, *, delay_seconds: int = 0) -> None:
            assert isinstance(message, Wake)
            self.sent.append((message.run_id, delay_seconds))
            await send(queue, message, delay_seconds=delay_seconds)

        it.queue.send = watched  # type: ignore[method-assign]  # looks on

    @classmethod
    async def of(cls, runs: int, **settings: Any) -> Outage:
        """So many runs overdue, the first since longest."""
        it = await Swept(sweep_batch=200, **settings).with_tenants()
        one = waiting(0, 0)
        for number in range(runs):
            due_at = START + timedelta(seconds=number - runs - 600)
            run = replace(one, id=an_id(number), due_at=due_at)
            it.runs._rows[key_of(run)] = run  # what `put` does, without its checks: ten times faster
            it.runs._index(run)
        return cls(it)

    async def minute(self, work: int) -> list[tuple[str, int]]:
        """A pass, and a minute in which workers take so many wakes; what was sent."""
        self.sent.clear()
        await self.it.sweep()
        sent = list(self.sent)
        await self.it.clock.advance(60)
        while work > 0:
            batch = await self.it.queue.receive(RESUMING, limit=min(10, work), wait_seconds=0, visibility_seconds=60)
            if not batch:
                break
            work -= len(batch)
            for received in batch:
                assert received.message is not None
                await self.claimed(received.message.run_id)
            await self.it.queue.delete(batch)
        return sent

    async def claimed(self, run_id: str) -> None:
        """A worker takes the run and ends it, unless that was done."""
        now = self.it.clock.now()
        run = await self.it.runs.get(RunKey(tenant="acme", run_id=run_id), now=now)
        assert run is not None
        if run.status is Status.WAITING:
            ended = replace(run, status=Status.SUCCEEDED, version=4, due_at=None, finished_at=now)
            await self.it.runs.put(ended, IfVersion(version=3, submission=run.submission), now=now)

    async def lose(self) -> int:
        """An operator purges the queue; how many wakes that were."""
        lost = 0
        while batch := await self.it.queue.receive(RESUMING, limit=10, wait_seconds=0, visibility_seconds=60):
            lost += len(batch)
            await self.it.queue.delete(batch)
        return lost


async def test_an_outage_of_a_hundred_thousand_runs_is_worked_off_oldest_first_and_nobody_is_rung_for_twice() -> None:
    outage = await Outage.of(OVERDUE)
    order: list[str] = []
    for work in (1_000, 600, 0, 0, 300, 1_000, 1_000):
        depth = await outage.it.queue.depth(RESUMING)
        sent = await outage.minute(work)
        assert len(sent) == CAP - depth.visible - depth.in_flight - depth.delayed
        per_second = Counter(delay for _, delay in sent)
        assert max(per_second.values(), default=0) <= -(-CAP // 60)
        assert all(delay < 60 for delay in per_second)
        order += [run_id for run_id, _ in sent]
    assert len(order) > 3_800
    # One needless wake a pass at most: the oldest of those that wait, so that no queue can hide a loss for ever.
    repeated = len(order) - len(set(order))
    assert repeated <= 8
    first = list(dict.fromkeys(order))
    assert first == [an_id(number) for number in range(len(first))]


async def test_wakes_that_get_lost_in_the_middle_of_a_backlog_are_sent_again() -> None:
    outage = await Outage.of(3_000)
    await outage.minute(400)
    assert await outage.lose() == 600
    sent = await outage.minute(0)
    assert sorted(run_id for run_id, _ in sent)[:500] == [an_id(number) for number in range(400, 900)]
    for _ in range(8):
        await outage.minute(1_000)
    waiting_still = [run.id for run in outage.it.runs.rows.values() if run.status is Status.WAITING]
    assert waiting_still == []


async def test_a_backlog_with_nobody_to_work_on_it_gets_no_wakes_beyond_its_queue() -> None:
    outage = await Outage.of(3_000)
    sent = [len(await outage.minute(0)) for _ in range(30)]
    assert sent[0] == CAP
    assert sum(sent[1:]) == 0


async def test_one_class_with_a_backlog_holds_up_no_other() -> None:
    classes = {"model": ClassSettings(), "harness": ClassSettings()}
    outage = await Outage.of(3_000, classes=classes)
    await outage.it.runs.put(waiting(9_000, -5, class_name="harness"), IfAbsent(), now=START)
    assert an_id(9_000) in {run_id for run_id, _ in await outage.minute(0)}


async def test_timers_of_other_runs_hold_no_wake_up() -> None:
    outage = await Outage.of(10)
    for number in range(2 * CAP):
        wake = Wake(tenant="acme", run_id=an_id(number), submission="s" * 16, class_name="model")
        await outage.it.queue.send(RESUMING, wake, delay_seconds=900)
    assert len(await outage.minute(0)) == 10


async def test_dead_leases_get_their_wakes_beside_a_backlog_of_timers() -> None:
    outage = await Outage.of(3_000)
    ago = START - timedelta(minutes=2)
    for number in range(5_000, 5_200):
        run = a_run(number, status=Status.RUNNING, version=2, epoch=1, owner="c" * 16, lease_until=ago)
        await outage.it.runs.put(replace(run, created_at=START - timedelta(days=1)), IfAbsent(), now=START)
    sent = {run_id for run_id, _ in await outage.minute(0)}
    assert {an_id(number) for number in range(5_000, 5_200)} <= sent
    again = [run_id for run_id, _ in await outage.minute(0) if run_id >= an_id(5_000)]
    assert len(again) <= 1, "their wakes are still in the queue"


class Million:
    """A store with a million active runs, of which only what is asked for ever exists."""

    ROWS = 1_000_000
    _one = waiting(0, -60)

    async def page(
        self, tenant: str, bucket: str, *, limit: int, before: IndexKey | None = None, ascending: bool = False
    ) -> Sequence[IndexKey]:
        assert (bucket, ascending) == (Bucket.ACTIVE, True)
        first = 0 if before is None or not before.run_id else int(before.run_id[1:]) + 1
        last = min(first + limit, self.ROWS)
        return [IndexKey(tenant=tenant, run_id=an_id(n), created_at=START) for n in range(first, last)]

    async def get_many(self, keys: Sequence[RunKey], *, now: Any) -> Mapping[RunKey, Run]:
        assert len(keys) <= MAX_READ
        # All due, all waiting: the most work there can be.
        return {key: replace(self._one, id=key.run_id) for key in keys}

    async def due(self, class_name: str, until: Any, *, limit: int) -> Sequence[DueKey]:
        due_at = START - timedelta(seconds=60)
        return [DueKey(tenant="acme", run_id=an_id(n), due_at=due_at) for n in range(limit)]


@pytest.mark.parametrize("leaks", [False, True])
async def test_a_pass_over_a_million_live_runs_costs_what_the_operations_page_says(leaks: bool) -> None:
    it = await Swept().with_tenants()
    if leaks:
        await it.slots.reserve("model", now=START)
        await it.clock.advance(5 * 3_600)
    it.runs = it.services.runs._port = Million()  # type: ignore[assignment]  # as far as the sweeper asks
    for _ in range(3):
        it.calls.clear()
        report = await it.sweep()
        assert (report.checked, report.turn_seconds) == (it.settings.sweep_batch, None)
        counting = 10 if leaks else 0
        assert it.calls["runs.page"] == 20 + counting
        assert it.calls["runs.due"] == 1
        assert it.calls["runs.get_many"] <= 20 + 10 + counting
        assert it.calls["queue.send"] <= CAP
        assert it.calls["queue.depth"] == 2
        assert it.calls["sweeper_state.get"] == 5
        assert it.calls["sweeper_state.put"] <= 5
        assert it.calls["tokens.tenants"] <= 2
        assert (it.calls["slots.sample"], it.calls["slots.held"]) == (1, 1)
        await it.clock.advance(60)
