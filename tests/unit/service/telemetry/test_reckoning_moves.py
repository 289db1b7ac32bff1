"""Each end and each change is counted by the one who committed it: an operator's moves, a holder's, never both."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.errors import Throttled, Unavailable
from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.messages import RESUME, QueueName, Wake
from fanfold.engine.record.run import Status
from fanfold.engine.rules.events import CancelAsked, PauseAsked, ResumeAsked
from fanfold.service.settings import Settings
from fanfold.service.telemetry.metric_buffer import taken
from fanfold.service.telemetry.metrics import Metric
from fanfold.service.telemetry.reporting import configure, count, flush, observe
from tests.support.builders import a_run
from tests.support.clock import FakeClock
from tests.support.counts import keep_counts, totals
from tests.support.http import Http, memory_services
from tests.support.operators import a_signal, operate
from tests.support.sweeping import Swept
from tests.support.virtual import virtually
from tests.support.world import World

MODEL = ("model",)
BACKOFF = {"max_attempts": 5, "backoff": "4s", "jitter": "none", "on_interrupt": "retry"}


@pytest.fixture(autouse=True)
def _nothing_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_counts(monkeypatch)


def plays(ms: int = 0, **given: Any) -> dict[str, Any]:
    retry = given.pop("retry", {})
    return {"task": "probe.play", "input": {"ms": ms, **given}, "retry": retry}


@virtually
async def test_a_held_run_that_operators_pause_and_cancel_between_two_looks_is_cancelled_once() -> None:
    """Between its attempts nothing of it runs, so the cancel ends it; its holder finds it ended."""
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": plays(fail=3, retry=BACKOFF)}}))
    async with world.worker():
        await asyncio.sleep(1)
        assert (await world.row(envelope)).status is Status.RUNNING
        await operate(world, envelope, PauseAsked(by="Ada"))
        await operate(world, envelope, CancelAsked(by="Ada"))
        await asyncio.sleep(30)

    assert (await world.row(envelope)).status is Status.CANCELLED
    told = totals()
    assert told[Metric.RUNS_CANCELLED, MODEL] == 1


@virtually
async def test_a_wait_that_a_signal_ends_is_a_step_that_ended() -> None:
    world = World()
    gate = {"wait": {"signal": "approve", "timeout": "1h"}}
    envelope = await world.submit(
        await world.register({"steps": {"gate": gate, "after": {**plays(), "needs": ["gate"]}}})
    )
    async with world.worker():
        await asyncio.sleep(30)
        await operate(world, envelope, a_signal())
        await world.ended(envelope)

    assert totals()[Metric.STEPS, MODEL] == 2


@virtually
async def test_a_dead_holder_that_two_workers_find_at_once_died_once() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": plays(20_000)}}))
    first = world.process()
    (message,) = await first.receive()
    first.take(message)
    await asyncio.sleep(5)
    await first.kill()
    await asyncio.sleep(120)
    wake = Wake(tenant="acme", run_id=envelope.run_id, submission=envelope.submission, class_name="model")
    resume = QueueName(class_name="model", role=RESUME)
    await world.queue.send(resume, wake)
    await world.queue.send(resume, wake)
    two = [world.process(), world.process()]
    received = [(await process.receive(resume))[0] for process in two]
    await asyncio.gather(*(process.take(message) for process, message in zip(two, received, strict=True)))

    assert totals()[Metric.CRASHES, MODEL] == 1


@virtually
async def test_a_holder_that_died_while_its_run_was_paused_is_found_by_the_resumption_once() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": plays(20_000)}}))
    first = world.process()
    (message,) = await first.receive()
    first.take(message)
    await asyncio.sleep(5)
    await operate(world, envelope, PauseAsked(by="Ada"))
    await first.kill()
    await asyncio.sleep(120)
    await operate(world, envelope, ResumeAsked(by="Ada"))
    async with world.worker():
        await world.ended(envelope)

    told = totals()
    assert (told[Metric.CRASHES, MODEL], told[Metric.INTERRUPTED, MODEL]) == (1, 1)


@virtually
async def test_a_wake_that_comes_a_moment_early_repeats_nothing() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": {"wait": {"for": "60s"}}}}))
    async with world.worker():
        await asyncio.sleep(50)
        wake = Wake(tenant="acme", run_id=envelope.run_id, submission=envelope.submission, class_name="model")
        await world.queue.send(QueueName(class_name="model", role=RESUME), wake)
        await world.ended(envelope)

    assert (Metric.DUPLICATES, ()) not in totals()


async def test_a_sweeper_that_could_not_ask_what_is_due_does_not_say_that_nothing_is() -> None:
    swept = await Swept().with_tenants()

    async def refuses(*_: object, **__: object) -> None:
        raise Unavailable("not today")

    swept.services.runs.due = refuses
    with pytest.raises(ExceptionGroup):
        await swept.sweep()

    assert (Metric.OVERDUE, MODEL) not in taken()


def test_what_was_counted_is_written_before_a_process_ends_without_a_word() -> None:
    script = (
        "import os; from fanfold.service.telemetry.reporting import Metric, count, flush\n"
        "count(Metric.OUTAGES); flush(); os._exit(1)"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env)
    assert '"Outages":[1]' in ended.stdout


def test_what_calls_cost_is_told_together_and_all_else_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    http = Http(services=memory_services(clock=clock))

    def told(*counted: Metric) -> list[str]:
        for metric in counted:
            count(metric)
        http.app(http.event("GET", "/v1/health"), None)
        return [line for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]

    try:
        assert len(told(Metric.TABLE_CALLS)) == 1
        assert told(Metric.TABLE_CALLS, Metric.TABLE_READ_UNITS) == []
        (line,) = told(Metric.TABLE_CALLS, Metric.DUPLICATES)
        assert '"Duplicates":[1]' in line
        assert "TableCalls" not in line
        assert told(Metric.TABLE_CALLS) == []
        asyncio.run(clock.advance(10))
        (line,) = told()
        assert '"TableCalls":[3]' in line
    finally:
        http.app.close()


def test_without_lanes_a_classs_waits_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings(lane_metrics=False, debug_sample=0))
    try:
        for lane, wait in (("high", 1.0), ("low", 2.0)):
            observe(Metric.QUEUE_WAIT, wait, of=("model", lane))
        flush()
    finally:
        configure(Settings(debug_sample=0))
    (line,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (line["class"], sorted(line["QueueWait"]), "lane" in line) == ("model", [1.0, 2.0], False)
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["service", "class"]]


@virtually
async def test_a_run_whose_worker_is_broken_off_after_its_last_write_has_ended_all_the_same() -> None:
    """Its place can't be returned and is tried for long: the invocation's time is over before that."""
    world = World()

    async def refuses(*_: object, **__: object) -> None:
        raise Throttled("not now")

    slots: Any = world.services.slots
    slots.give_back = refuses
    envelope = await world.submit(await world.register({"steps": {"a": plays()}}))
    process = world.process()
    (message,) = await process.receive()
    task = process.take(message)
    await asyncio.sleep(5)
    assert (await world.row(envelope)).status is Status.SUCCEEDED
    task.cancel()
    await asyncio.wait({task})

    assert totals()[Metric.RUNS_SUCCEEDED, MODEL] == 1


async def test_each_repair_of_the_sweeper_has_a_line_with_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    swept = await Swept().with_tenants()
    now = swept.clock.now()
    dead = a_run(11, status=Status.RUNNING, owner="c", epoch=1, lease_until=now - timedelta(minutes=5), slot=None)
    due = a_run(12, status=Status.WAITING, due_at=now - timedelta(seconds=30), slot=None)
    for run in (dead, due):
        await swept.runs.put(run, IfAbsent(), now=now)
    queued = await swept.submit()
    for _ in range(4):
        await swept.sweep()
        await swept.clock.advance(60)

    lines = [
        json.loads(line)
        for line in capsys.readouterr().out.splitlines()
        if "a wake was sent" in line or "a lost wake" in line or "again" in line
    ]
    assert {(line["message"], line["correlation_id"]) for line in lines} == {
        ("a wake was sent for a run whose worker died", dead.id),
        ("a lost wake of a due run was sent again", due.id),
        ("a queued run's envelope was sent again", queued.id),
    }
