"""Thirty days of waits on virtual time, with lost and doubled messages: on time all the same (R4)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fanfold.engine.record.messages import Envelope, Message, QueueName, Wake
from fanfold.engine.record.run import Status
from fanfold.service.engine_limits import engine_limits
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.worker.dispositions import Redeliver
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.builders import a_token
from tests.support.clock import START
from tests.support.virtual import virtually
from tests.support.world import LANE, RESUME_QUEUE, World, consistent

ON_TIME = timedelta(seconds=2)
LATE = timedelta(seconds=122)
"""Two passes of the sweeper, and the time to act."""


def at_the_end(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


PLAN: dict[str, dict[str, Any]] = {
    "minutes": {"for": "14m"},
    "longer": {"for": "16m"},
    "hours": {"for": "7h"},
    "moment": {"until": at_the_end(3 * 86_400 + 17.25)},
    "days": {"for": "9d"},
    "nobody": {"signal": "approve", "timeout": "5d"},
    "second": {"for": "30s"},
    "rest": {"until": at_the_end(30 * 86_400)},
}
"""One wait after the other."""


class Post:
    """The queue as everybody sends to it: messages get lost or doubled, but no two in a row for a run get lost."""

    def __init__(self, world: World, seed: int) -> None:
        self._queue = world.queue
        self._clock = world.services.clock
        self._random = random.Random(seed)
        self._lost_before: set[str] = set()
        self.arrivals: list[tuple[str, datetime]] = []
        self.lost = self.doubled = 0
        self.news = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        chance = self._random.random()
        if chance < 0.4 and message.run_id not in self._lost_before:
            self._lost_before.add(message.run_id)
            self.lost += 1
            return
        self._lost_before.discard(message.run_id)
        copies = 2 if chance > 0.7 else 1
        self.doubled += copies - 1
        for _ in range(copies):
            await self._queue.send(queue, message, delay_seconds=delay_seconds)
        self.arrivals.append((message.run_id, self._clock.now() + timedelta(seconds=delay_seconds)))
        self.news.set()


async def work(world: World, post: Post) -> None:
    """One worker at a time; it sleeps while there is no message, which costs virtual time nothing."""
    process = world.process()
    process.queue.inner = post
    while True:
        await post.news.wait()
        post.news.clear()
        while await _waiting(world):
            for message in await process.receive(RESUME_QUEUE, wait=20):
                what = await process.take(message)
                if isinstance(what, Redeliver):
                    await post.hide([message], seconds=what.seconds)
                else:
                    await post.delete([message])


async def _waiting(world: World) -> bool:
    depth = await world.queue.depth(RESUME_QUEUE)
    return bool(depth.visible + depth.in_flight + depth.delayed)


async def passes(world: World, post: Post, runs: Sequence[Envelope]) -> None:
    """A pass of the sweeper each minute; those that can find nothing due are left out."""
    services = replace(world.services, queue=post)
    await services.tokens.put(a_token())
    limits = engine_limits(services.settings)
    settle = QueueExpiry(services, WorkflowCache(services.catalog, services.settings.classes), limits)
    while True:
        due = [run.due_at for run in [await world.row(run) for run in runs] if run.due_at is not None]
        ahead = (min(due, default=START) - services.clock.now()).total_seconds() // 60 - 5
        await asyncio.sleep(60 * max(1, ahead))
        await sweep(services, limits, now=services.clock.now(), expire=settle)


@pytest.mark.parametrize("seed", range(4))
@virtually
async def test_thirty_days_of_waits_end_on_time_though_messages_get_lost_and_doubled(seed: int) -> None:
    world = World(seed=seed)
    post = Post(world, seed)
    steps: dict[str, Any] = {}
    for name, wait in PLAN.items():
        before = list(steps)[-1:]
        steps[name] = {"wait": wait, "needs": before, "join": "settled", "on_failure": "continue"}
    workflow = await world.register({"timeout": "40d", "steps": steps})
    runs = [await world.submit(workflow) for _ in range(10)]
    process = world.process()
    for message in await process.receive(LANE, limit=10):
        process.queue.inner = post
        await process.take(message)
    tasks = [asyncio.create_task(work(world, post)), asyncio.create_task(passes(world, post, runs))]
    await asyncio.sleep(30 * 86_400 + 300)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert post.lost > 10
    assert post.doubled > 10
    for envelope in runs:
        run = await world.row(envelope)
        consistent(run)
        assert run.status is Status.SUCCEEDED
        began = run.steps["minutes"].started_at
        assert began is not None
        for name, wait in PLAN.items():
            due = _due(wait, began)
            ended = run.steps[name].finished_at
            assert ended is not None
            rung = any(id_ == run.id and due - ON_TIME <= at <= due + ON_TIME for id_, at in post.arrivals)
            assert due <= ended <= due + (ON_TIME if rung else LATE), f"{name} was due {due} and ended {ended}"
            began = ended
        assert run.steps["nobody"].error is not None
        assert run.epoch <= len(PLAN) + 1, "each wait is one claim, however many messages ring for it"


def _due(wait: dict[str, Any], began: datetime) -> datetime:
    if "until" in wait:
        return datetime.fromisoformat(wait["until"])
    text = wait.get("for") or wait["timeout"]
    return began + timedelta(seconds=int(text[:-1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[text[-1]])


class Outage:
    """The queue as everybody sends to it: every wake is lost until `ends`."""

    def __init__(self, world: World, ends: datetime) -> None:
        self._queue = world.queue
        self._clock = world.services.clock
        self._ends = ends
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        if queue == RESUME_QUEUE and self._clock.now() < self._ends:
            self.lost += 1
            return
        await self._queue.send(queue, message, delay_seconds=delay_seconds)


async def sweep_each_minute(world: World, post: Outage) -> None:
    services = replace(world.services, queue=post)
    await services.tokens.put(a_token())
    limits = engine_limits(services.settings)
    settle = QueueExpiry(services, WorkflowCache(services.catalog, services.settings.classes), limits)
    while True:
        await asyncio.sleep(60)
        await sweep(services, limits, now=services.clock.now(), expire=settle)


@virtually
async def test_every_wake_lost_for_ten_minutes_is_made_good_by_the_two_passes_after_them() -> None:
    world = World()
    ends = START + timedelta(minutes=10)
    post = Outage(world, ends)
    steps = {
        "before": {"task": "probe.play", "input": {"ms": 100}},
        "nap": {"wait": {"for": "30s"}, "needs": ["before"]},
        "after": {"task": "probe.play", "needs": ["nap"], "input": {"ms": 100}},
    }
    workflow = await world.register({"steps": steps})
    runs = [await world.submit(workflow) for _ in range(20)]
    process = world.process()
    process.queue.inner = post
    sweeper = asyncio.create_task(sweep_each_minute(world, post))
    async with process.worker():
        await asyncio.sleep(599)
        assert {(await world.row(run)).status for run in runs} == {Status.WAITING}
        assert post.lost >= len(runs) * 9, "the commit's own ring, and one a pass"
        ended = [await world.ended(run, within=600) for run in runs]
    sweeper.cancel()
    for run in ended:
        consistent(run)
        assert (run.status, run.epoch) == (Status.SUCCEEDED, 2)
        assert run.finished_at is not None
        assert ends <= run.finished_at <= ends + LATE
    assert len([started for started in world.log if started.what == "start"]) == 2 * len(runs)


@virtually
async def test_a_suspended_run_holds_no_worker_and_costs_two_index_writes() -> None:
    world = World()
    envelope = await world.submit(await world.register({"timeout": "30d", "steps": {"gate": {"wait": {"for": "9d"}}}}))
    process = world.process()
    await process.work()
    run = await world.row(envelope)
    assert (run.status, run.version) == (Status.WAITING, 2)  # claimed and suspended in one write
    assert not await _waiting(world)
    await asyncio.sleep(9 * 86_400)
    await world.queue.send(
        RESUME_QUEUE,
        Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name),
    )
    await process.work(RESUME_QUEUE)
    run = await world.row(envelope)
    assert (run.status, run.version) == (Status.SUCCEEDED, 3)
