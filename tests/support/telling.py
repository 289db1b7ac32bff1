"""What the real code says of itself in scenes that a real stack plays too rarely: its own metrics lines, caught.

Each scene is played in memory, on virtual time, with the settings of a deployment: the names, dimensions and numbers
of what is counted are those the deployed functions would write.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from fanfold.engine.errors import Throttled
from fanfold.engine.ports import IfVersion
from fanfold.engine.record.messages import RESUME, QueueName
from fanfold.engine.record.run import Reason
from fanfold.local.emf import MARK
from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.task_modules import load_tasks
from fanfold.service.telemetry import metric_buffer, reporting
from fanfold.service.telemetry.metrics import Metric
from fanfold.service.workflow_cache import WorkflowCache
from fanfold.tasks import registry
from tests.simulation.schedule import play
from tests.support.builders import a_token
from tests.support.http import Http, memory_services, settings_with
from tests.support.virtual import run as virtually
from tests.support.world import TENANT, Process, World

SEEDS = 300
"""Schedules of the simulation that are tried for what is rare."""


@contextmanager
def told(settings: Settings) -> Iterator[list[str]]:
    """The metrics lines that the code writes within, in the name of this deployment; they are there at the end."""
    lines: list[str] = []
    heard = io.StringIO()
    reporting.flush()  # what was counted before is nobody's
    reporting.configure(replace(settings, log_level="CRITICAL", debug_sample=0))
    try:
        with redirect_stdout(heard):
            yield lines
            reporting.flush()
    finally:
        reporting.configure(Settings(debug_sample=0))
    lines += [line for line in heard.getvalue().splitlines() if MARK in line]


def of_a_broken_module() -> None:
    """A process that can't import one of its modules of tasks."""
    module = registry.BrokenModule(
        name="functions.tasks.absent", error="ModuleNotFoundError", trace="", tasks=frozenset()
    )
    with patch.object(registry, "broken", lambda: (module,)):
        load_tasks(Settings())


def of_schedules(wanted: Iterable[Metric]) -> None:
    """Plays the simulation's schedules of faults until each of these was counted."""
    missing = set(wanted)
    for seed in range(1, SEEDS):
        play(seed)
        for (metric, of), values in metric_buffer.taken().items():
            missing.discard(metric)
            for value in values:
                reporting.observe(metric, value, of=of)
        if not missing:
            return
    raise AssertionError(f"{SEEDS} schedules counted no {', '.join(missing)}")


def of_holders(settings: Settings, class_name: str) -> None:
    """Runs held long, wanted by two, in other hands, expired in the queue, failed by crashes, met by a wrong clock."""

    async def scene() -> None:
        world = World(settings=replace(settings, ledger="", classes=_without_machines(settings.classes)))
        lane = QueueName(class_name=class_name, role="normal")
        slow = {"name": "slow", "class": class_name, "steps": {"a": {"task": "chaos.sleep", "input": {"ms": 20_000}}}}
        workflow = await world.register(slow)
        # Held long enough to be renewed, then taken over: the holder learns it by its next write.
        held = await world.submit(workflow)
        holder = world.process()
        (message,) = await holder.receive(lane)
        task = holder.take(message)
        await asyncio.sleep(settings.lease_seconds)
        row = await world.row(held)
        taken = replace(row, version=row.version + 1, epoch=row.epoch + 1, owner="another", write_id="another")
        condition = IfVersion(version=row.version, submission=row.submission)
        await world.runs.put(taken, condition, now=world.services.clock.now())
        await task
        await world.queue.delete([message])
        # Two have the same message at once.
        wanted = await world.submit(workflow)
        await world.queue.send(lane, wanted)
        both = [(one := world.process(), (await one.receive(lane))[0]) for _ in range(2)]
        await asyncio.gather(*(one.take(message) for one, message in both))
        await world.queue.delete([message for _, message in both])
        await _dead_holder(world, slow, lane)
        await _expired(world, slow, settings)
        await _clock_off(world, slow, lane)

    virtually(scene())


def _without_machines(classes: Mapping[str, ClassSettings]) -> Mapping[str, ClassSettings]:
    return {name: replace(given, state_machine="") for name, given in classes.items()}


async def _dead_holder(world: World, document: dict[str, Any], lane: QueueName) -> None:
    """A run whose workers died, once more than it may: the next one that comes ends it."""
    envelope = await world.submit(await world.register(document))
    holder = world.process()
    (message,) = await holder.receive(lane)
    task = holder.take(message)
    await asyncio.sleep(0.5)
    await holder.kill()
    task.cancel()
    row = await world.row(envelope)
    worn = replace(row, version=row.version + 1, crashes=world.settings.max_crashes - 1, write_id="worn")
    await world.runs.put(
        worn, IfVersion(version=row.version, submission=row.submission), now=world.services.clock.now()
    )
    end = world.services.clock.now() + timedelta(minutes=10)
    next_one: Process = world.process()
    while not (await world.row(envelope)).terminal and world.services.clock.now() < end:
        for queue in (lane, QueueName(class_name=lane.class_name, role=RESUME)):
            for message in await next_one.receive(queue):
                await next_one.take(message)
        await asyncio.sleep(1)
    assert (await world.row(envelope)).reason is Reason.ATTEMPTS_EXHAUSTED


async def _clock_off(world: World, document: dict[str, Any], lane: QueueName) -> None:
    """A run whose message reaches a process whose clock is off: it goes back."""
    await world.submit(await world.register(document))
    process = world.process()
    process.services = replace(process.services, clock_offset=lambda: 6.0)
    process.runner = process.new_runner()
    (message,) = await process.receive(lane)
    await process.take(message)
    await world.queue.delete([message])


async def _expired(world: World, document: dict[str, Any], settings: Settings) -> None:
    """A run that nobody takes before its time in the queue is over: the sweeper settles it."""
    await world.services.tokens.put(a_token(tenant=TENANT))
    envelope = await world.submit(await world.register({**document, "name": "late", "queue_timeout": "1s"}))
    settle = QueueExpiry(
        world.services, WorkflowCache(world.services.catalog, world.settings.classes), engine_limits(settings)
    )
    end = world.services.clock.now() + timedelta(hours=1)
    while not (await world.row(envelope)).terminal and world.services.clock.now() < end:
        await asyncio.sleep(60)
        await sweep(world.services, engine_limits(settings), now=world.services.clock.now(), expire=settle)
    assert (await world.row(envelope)).reason is Reason.EXPIRED_IN_QUEUE


async def refusals() -> None:
    """Submits that the API refuses: for a full queue, for the tenant's rate, and because SQS refuses the message."""
    tiny = {"name": "tiny", "steps": {"only": {"task": "core.echo"}}}

    async def statuses(http: Http, submits: int) -> list[int]:
        assert (await http("PUT", "/v1/workflows/tiny", tiny)).status == 201
        return [(await http("POST", "/v1/runs", {"workflow": "tiny"})).status for _ in range(submits)]

    full = Http(services=memory_services(settings_with(max_queue_depth=1)))
    assert await statuses(full, 2) == [202, 429]
    fast = Http(services=memory_services(settings_with(submits_per_minute=1)))
    assert 429 in await statuses(fast, 3)
    refusing = Http(services=memory_services(settings_with(), queue=_Refusing()))
    assert await statuses(refusing, 1) == [503]


class _Refusing:
    """A queue that takes nothing."""

    async def send(self, *args: Any, **given: Any) -> None:
        raise Throttled("refused as planned")
