"""Plain functions and their threads: whose time the wait for one is, and what a second attempt waits for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fanfold.service.clock import SystemClock
from fanfold.service.settings import Settings
from fanfold.service.worker.task_runner import Failed, Job, NotBegun, Succeeded, TaskRunner
from fanfold.tasks import registry
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task
from tests.support.world import World, journal_of


@pytest.fixture(autouse=True)
def _forget_what_the_test_registers() -> Iterator[None]:
    registry.load_all()
    before = dict(registry._tasks)
    yield
    registry._tasks.clear()
    registry._tasks.update(before)


def a_job(timeout_seconds: float = 5.0, **given: Any) -> Job:
    values: dict[str, Any] = {
        "tenant": "acme",
        "run_id": "r1",
        "submission": "s1",
        "step": "only",
        "attempt": 1,
        "epoch": 1,
        "task": "own.task",
        "input": None,
        "timeout_seconds": timeout_seconds,
    }
    return Job(**values | given)


def ignored(data: Any) -> None:
    """Nobody listens."""


async def test_the_wait_for_a_thread_is_not_the_steps_time() -> None:
    attempts = TaskRunner(Settings(concurrency=2), SystemClock())
    left: list[float] = []

    @task("own.task")
    def work(given: Any, ctx: Context) -> None:
        left.append(ctx.remaining_seconds())
        time.sleep(0.1)

    # The last ones wait for 0.4 s, twice as long as an attempt may take.
    outcomes = await asyncio.gather(*(attempts.run(a_job(0.2), emit=ignored) for _ in range(10)))
    assert [type(outcome) for outcome in outcomes] == [Succeeded] * 10
    assert min(left) > 0.1, "each has its whole time when it begins"


async def test_who_gets_no_thread_while_there_is_time_for_the_attempt_has_not_begun() -> None:
    attempts = TaskRunner(Settings(concurrency=1), SystemClock())
    release, ran = threading.Event(), []

    @task("own.task")
    def work(given: Any) -> None:
        ran.append(given)
        release.wait(10)

    first = asyncio.create_task(attempts.run(a_job(input="first"), emit=ignored))
    await asyncio.sleep(0.02)
    time_for_it = True
    second = asyncio.create_task(attempts.run(a_job(input="second", in_time=lambda: time_for_it), emit=ignored))
    await asyncio.sleep(0.05)
    assert not second.done()
    time_for_it = False
    assert await second == NotBegun()
    release.set()
    assert isinstance(await first, Succeeded)
    assert ran == ["first"]
    assert isinstance(await attempts.run(a_job(input="third"), emit=ignored), Succeeded), "its thread is free"


async def test_cancelling_an_attempt_that_waits_for_a_thread_takes_no_thread_from_others() -> None:
    attempts = TaskRunner(Settings(concurrency=1), SystemClock())
    release = threading.Event()

    @task("own.task")
    def work(given: Any) -> None:
        release.wait(10)

    first = asyncio.create_task(attempts.run(a_job(), emit=ignored))
    await asyncio.sleep(0.02)
    waiting = [asyncio.create_task(attempts.run(a_job(), emit=ignored)) for _ in range(3)]
    await asyncio.sleep(0.02)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert all(each.cancelled() for each in waiting)
    release.set()
    assert isinstance(await first, Succeeded)
    assert isinstance(await attempts.run(a_job(), emit=ignored), Succeeded)


async def test_an_attempt_at_its_timeout_is_over_only_when_a_thread_that_stops_has_stopped() -> None:
    attempts = TaskRunner(Settings(), SystemClock(), grace_seconds=5)
    going: list[int] = []
    most = 0

    @task("own.task")
    def polite(given: Any, ctx: Context) -> None:
        nonlocal most
        going.append(1)
        most = max(most, len(going))
        while not ctx.cancelled:
            time.sleep(0.005)
        time.sleep(0.1)
        going.pop()

    for _ in range(3):  # as a step's attempts follow each other
        outcome = await attempts.run(a_job(0.02), emit=ignored)
        assert isinstance(outcome, Failed)
        assert outcome.failure.type == "timed_out"
        assert not going, "the next attempt would run beside it"
    assert most == 1
    assert not attempts.lingering


PARALLEL = {"steps": {f"s{n}": {"task": "own.task", "timeout": "1s", "retry": {"max_attempts": 1}} for n in range(12)}}


async def test_a_run_of_more_plain_steps_than_threads_succeeds_however_long_they_wait() -> None:
    world = World(settings=Settings(chaos=True, concurrency=2))

    @task("own.task")
    def work(given: Any) -> str:
        time.sleep(0.4)
        return "done"

    run = await world.play(PARALLEL, within=30)
    assert run.status == "succeeded", run.error


async def test_steps_that_wait_for_a_thread_are_handed_over_uncounted_when_their_worker_has_to_stop() -> None:
    world = World(settings=Settings(chaos=True, concurrency=2))
    release, begun = threading.Event(), threading.Semaphore(0)

    @task("own.task")
    def work(given: Any) -> str:
        begun.release()
        release.wait(10)
        return "done"

    envelope = await world.submit(await world.register(PARALLEL))
    async with world.worker(concurrency=2) as worker:
        await asyncio.to_thread(begun.acquire)
        await asyncio.to_thread(begun.acquire)
        worker.stop()
        release.set()
    run = await world.row(envelope)
    assert run.status == "waiting"
    assert sum(state.status == "succeeded" for state in run.steps.values()) == 2
    assert all(state.failures == state.interruptions == 0 for state in run.steps.values())
    async with world.worker():
        run = await world.ended(envelope, within=30)
    assert run.status == "succeeded", run.error
    assert "step.retry_scheduled" not in " ".join(journal_of(run))


async def test_a_step_that_waits_for_a_thread_does_not_outlast_its_run() -> None:
    world = World(settings=Settings(chaos=True, concurrency=1))

    @task("own.task")
    def work(given: Any, ctx: Context) -> None:
        while not ctx.cancelled:
            time.sleep(0.01)

    steps = {name: {"task": "own.task", "timeout": "30s"} for name in ("a", "b")}
    deadline = world.services.clock.now() + timedelta(seconds=1)
    run = await world.play({"timeout": "30s", "steps": steps}, within=10, deadline=deadline)
    assert (run.status, run.reason) == ("failed", "timed_out")
