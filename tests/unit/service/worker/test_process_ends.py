"""How a real worker process ends, whatever its tasks do: spent, told to stop, with processes of its own (R7)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

WORKER = """
import asyncio, multiprocessing, os, sys, time
from fanfold.service.settings import Settings
import fanfold.service.worker.process as process
from fanfold.tasks.registry import load_all, task
from tests.support.world import World

load_all()

@task("own.pool")
def pool(given):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        total = sum(pool.map(abs, [-1, -2, -3]))
        pool.apply_async(time.sleep, (60,))
        time.sleep(0.2)  # that one has begun: it has to be ended by SIGTERM
        return total

@task("own.stubborn")
async def stubborn(given):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@task("own.ruin")
def ruin(given):
    sys.stdout.close()
    os.environ.clear()
    os.chdir("/")

@task("own.begun")
async def begun(given):
    os.write(2, b"begun\\n")
    await asyncio.sleep(given)

def one(task, **given):
    return {"steps": {"a": {"task": task, **given}}}

async def play(world, documents):
    envelopes = [await world.submit(await world.register(document)) for document in documents]
    for envelope in envelopes:
        run = await world.ended(envelope)
        os.write(2, f"{run.status} {run.steps['a'].output}\\n".encode())

def services(settings):
    global playing
    world = World(settings=settings)
    playing = asyncio.get_running_loop().create_task(play(world, DOCUMENTS))
    return world.services

process.services = services
ended = process.serve(Settings(chaos=True, drain_seconds=2), class_name="model", concurrency=4)
os.write(2, f"ended {ended.value}\\n".encode())
os._exit(0)
"""


class Running:
    """A worker process; what it says for the test is on its standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        assert self.process.stderr is not None
        self._reader.join(5)
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def until(self, what: str, times: int = 1, *, within: float = 30) -> None:
        end = time.monotonic() + within
        while len(re.findall(what, self.said)) < times:
            assert time.monotonic() < end, f"nobody said {what!r} in time, but:\n{self.said}"
            time.sleep(0.02)

    def ended(self, *, within: float = 30) -> str:
        assert self.process.wait(within) == 0
        self._reader.join(5)
        return re.findall(r"^ended (.*)$", self.said, re.M)[-1]


@contextmanager
def a_worker(documents: str) -> Iterator[Running]:
    script = WORKER.replace("DOCUMENTS", documents)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "AWS_DEFAULT_REGION": "eu-central-1"},
    )
    running = Running(process)
    try:
        yield running
    finally:
        process.kill()
        process.wait()
        running.close()


def test_a_spent_process_ends_though_an_async_task_never_stops() -> None:
    with a_worker("[one('own.stubborn', timeout='250ms')]") as worker:
        assert worker.ended() == "spent"


def test_a_process_that_is_told_to_stop_ends_though_an_async_task_never_stops() -> None:
    with a_worker("[one('own.begun', input=0), one('own.stubborn')]") as worker:
        worker.until("succeeded")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == "stopped"


def test_a_task_may_use_processes_of_its_own_and_end_them() -> None:
    with a_worker("[one('own.pool') for _ in range(3)]") as worker:
        worker.until("succeeded 6", times=3)
        assert worker.process.poll() is None, "its children's SIGTERM is not its own"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == "stopped"


def test_an_order_to_stop_that_comes_while_a_spent_process_drains_is_heard() -> None:
    documents = "[one('own.stubborn', timeout='250ms'), one('own.begun', input=30)]"
    with a_worker(documents) as worker:
        worker.until("begun")
        time.sleep(3)  # spent after 250 ms and the grace; it drains for 2 s more
        assert worker.process.poll() is None
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == "stopped"


def test_what_a_task_does_to_its_process_does_not_decide_how_the_process_ends() -> None:
    with a_worker("[one('own.ruin'), one('own.begun', input=0.5)]") as worker:
        worker.until("succeeded", times=2)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == "stopped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_process_stops_when_it_is_told_to(number: signal.Signals) -> None:
    with a_worker("[one('own.begun', input=0)]") as worker:
        worker.until("succeeded")
        worker.process.send_signal(number)
        assert worker.ended() == "stopped"
