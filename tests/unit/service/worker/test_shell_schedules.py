"""Random schedules: runs, workers, deaths, freezes, lost answers, operators; what must hold whatever happens."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from fanfold.engine.errors import Conflict
from fanfold.engine.ports import Condition, IfVersion, RunKey
from fanfold.engine.record.messages import Envelope, QueueName, Wake
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.lease import abandoned
from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import Settings
from fanfold.service.worker.batch import work
from tests.support.faults import Fault, Hanging, Late, Plan, Slow
from tests.support.virtual import loop, virtually
from tests.support.world import LANE, RESUME_QUEUE, TENANT, Process, World, consistent

PUT_FAULTS: list[Plan] = [
    Fault.LOST,
    Fault.DONE,
    Late(0.02),
    Late(0.3),
    Late(2),
    Slow(0.2),
    Slow(4),
    Hanging(0.2),
    Hanging(3),
    Fault.THROTTLED,
    Fault.DOWN,
]


INVOCATION_SECONDS = 120


def a_document(rng: random.Random) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for n in range(rng.randint(1, 6)):
        needs = rng.sample(sorted(steps), min(len(steps), rng.randint(0, 2)))
        steps[f"s{n}"] = {
            "task": "probe.play",
            "needs": needs,
            "input": {"ms": rng.choice([0, 10, 100, 100, 3_000, 30_000]), "fail": rng.choice([0, 0, 0, 1, 2])},
            "join": rng.choice(["succeeded", "settled", "any"]),
            "on_failure": rng.choice(["continue", "continue", "fail"]),
            "timeout": "60s",
            "retry": {"max_attempts": 2, "backoff": rng.choice(["100ms", "4s", "20s"])},
        }
        if rng.random() < 0.15:
            steps[f"s{n}"] = {**steps[f"s{n}"], "task": "chaos.emit", "input": {"count": 20, "every_ms": 200}}
        if rng.random() < 0.2:
            steps[f"s{n}"]["input"]["out"] = "x" * 9_000
    return {"steps": steps}


class Watched:
    """Looks at every record that is written: each must follow from the one before."""

    def __init__(self, world: World) -> None:
        self.puts: Counter[str] = Counter()
        self._inner = world.runs.put
        world.runs.put = self.put  # type: ignore[method-assign]
        self._rows = world.runs

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        before = self._rows.rows.get(RunKey(tenant=run.tenant, run_id=run.id))
        size = await self._inner(run, condition, now=now)
        self.puts[run.id] += 1
        consistent(run)
        if before is not None:
            assert run.version == before.version + 1
            assert not before.terminal
            assert run.journal[: len(before.journal)] == before.journal
            for name, state in before.steps.items():
                assert not state.settled or run.steps[name] == state
        return size


async def serve(process: Process) -> None:
    """A worker, in a task of the process, so that it can die anywhere."""
    async with process.worker(concurrency=4):
        await asyncio.wait({process.working})


async def invoke(process: Process) -> None:
    """Two event source mappings and the functions they call, with little time for each invocation."""

    async def mapping(queue: QueueName, size: int) -> None:
        me = asyncio.current_task()
        while True:
            messages = await process.world.queue.receive(
                queue, limit=size, wait_seconds=20, visibility_seconds=INVOCATION_SECONDS
            )
            if messages:
                began = loop().time()
                runner = process.new_runner()
                again = await work(
                    process.services, runner, messages, seconds_left=INVOCATION_SECONDS, spent=lambda: False
                )
                assert loop().time() - began < INVOCATION_SECONDS
                assert not [t for t in loop().tasks_of(process.name) if t not in (me, *mappings)], "tasks are left"
                await process.world.queue.delete([m for m in messages if m.message_id not in again])

    mappings = [asyncio.current_task()]
    await mapping(*((LANE, 3) if process.name.endswith("lane") else (RESUME_QUEUE, 1)))


async def sweep(world: World) -> None:
    """What the sweeper does for runs: rings for those that are due or whose lease is dead."""
    limits = engine_limits(world.settings)
    while True:
        await asyncio.sleep(30)
        now = world.services.clock.now()
        for run in world.runs.rows.values():
            due = run.status is Status.WAITING and run.due_at is not None and run.due_at <= now
            if due or abandoned(run, now, limits):
                wake = Wake(tenant=TENANT, run_id=run.id, submission=run.submission, class_name="model")
                await world.queue.send(RESUME_QUEUE, wake)


async def meddle(world: World, rng: random.Random, envelopes: list[Envelope]) -> None:
    """An operator, who writes over a record without changing its course."""
    while True:
        await asyncio.sleep(rng.uniform(0.05, 5))
        envelope = rng.choice(envelopes)
        row = world.runs.rows.get(RunKey(tenant=TENANT, run_id=envelope.run_id))
        if row is None or row.terminal or row.status is Status.QUEUED:
            continue
        run = replace(row, version=row.version + 1, write_id=f"op{rng.random()}", tags={"n": str(rng.random())})
        with suppress(Conflict):
            await world.runs.put(
                run, IfVersion(version=row.version, submission=row.submission), now=world.services.clock.now()
            )


async def schedule(
    seed: int, *, faults: float, deaths: bool, operator: bool, freezes: bool, lambdas: bool = False
) -> None:
    rng = random.Random(seed)
    world = World(seed=seed, settings=Settings(chaos=True, max_crashes=1_000))
    watched = Watched(world)
    documents = [a_document(rng) for _ in range(3)]
    envelopes = [await world.submit(await world.register(d), row=rng.random() < 0.7) for d in documents]

    def faulty(process: Process) -> Process:
        def of(plans: list[Plan]) -> Any:
            return lambda *_, **__: rng.choice(plans) if rng.random() < faults else Fault.NONE

        process.runs.rule("put", of(PUT_FAULTS))
        process.runs.rule("get", of([Fault.DOWN, Fault.LOST, Slow(1)]))
        process.slots.rule("give_back", of([Fault.LOST, Fault.DONE, Fault.THROTTLED]))
        process.queue.rule("send", of([Fault.LOST, Fault.DONE, Fault.DOWN]))
        process.queue.rule("delete", of([Fault.LOST, Fault.DONE]))
        process.blobs.rule("put", of([Fault.LOST, Fault.DOWN, Slow(1)]))
        process.blobs.rule("get", of([Fault.DOWN, Slow(1)]))
        return process

    others = [asyncio.create_task(sweep(world))]
    if operator:
        others.append(asyncio.create_task(meddle(world, rng, envelopes)))
    if lambdas:
        processes = [faulty(world.process(name)) for name in ("lane", "resume")]
        for process in processes:
            others.append(process.begin(invoke(process)))
    else:
        processes = [faulty(world.process()) for _ in range(2)]
        for process in processes:
            process.begin(serve(process))
    gone: list[Process] = []
    began, turns = loop().time(), loop().turns
    async with asyncio.timeout(6 * 3600):
        while not all(
            (row := world.runs.rows.get(RunKey(tenant=TENANT, run_id=e.run_id))) is not None and row.terminal
            for e in envelopes
        ):
            await asyncio.sleep(rng.uniform(0.5, 20))
            if deaths and rng.random() < 0.2:
                leaving = processes.pop(rng.randrange(len(processes)))
                if rng.random() < 0.5:
                    await leaving.kill()
                else:
                    leaving.at_work.stop()
                    gone.append(leaving)
                processes.append(faulty(world.process()))
                processes[-1].begin(serve(processes[-1]))
            if freezes and rng.random() < 0.1:
                loop().jump(rng.choice([1, 20, 58, 70, 200]))
            for other in others:
                assert not other.done(), other.exception()
    seconds = loop().time() - began
    for other in () if lambdas else others:
        other.cancel()

    starts = Counter((s.run, s.step, s.attempt) for s in world.log if s.what == "start")
    assert max(starts.values(), default=1) == 1, "an attempt was begun twice"
    for envelope in envelopes:
        run = await world.row(envelope)
        for name, state in run.steps.items():
            begun = {attempt for r, step, attempt in starts if (r, step) == (run.id, name)}
            assert max(begun, default=0) <= state.attempts
        told = Counter((e.step, e.attempt, str(e.data)) for e in run.journal if e.type == "step.emitted")
        assert max(told.values(), default=1) == 1, "progress was told twice"
        assert watched.puts[run.id] <= 40 + 4 * seconds + len(run.journal), "too many writes"
        assert not deaths or run.crashes < 1_000
    load = await world.slots.load("model")
    assert 0 <= load.depth <= len(envelopes)
    if not faults and not deaths:
        assert load.depth == 0
    assert loop().turns - turns < 20_000 + 400 * seconds, "the loop spins"
    # Let late puts and last messages come in: nothing may move any more.
    rows = [await world.row(envelope) for envelope in envelopes]
    await asyncio.sleep(300)
    assert [await world.row(envelope) for envelope in envelopes] == rows
    for process in processes:
        await process.kill()
    await asyncio.sleep(10)
    for process in processes + gone:
        assert not loop().tasks_of(process.name), "tasks are left over"


@pytest.mark.parametrize("seed", range(5))
@virtually
async def test_in_peace_every_run_ends(seed: int) -> None:
    await schedule(seed, faults=0, deaths=False, operator=False, freezes=False)


@pytest.mark.parametrize("seed", range(100, 110))
@virtually
async def test_with_lost_and_late_answers_every_run_ends_and_nothing_is_done_twice(seed: int) -> None:
    await schedule(seed, faults=0.3, deaths=False, operator=False, freezes=False)


@pytest.mark.parametrize("seed", range(200, 208))
@virtually
async def test_with_an_operator_writing_over_records_no_event_is_lost(seed: int) -> None:
    await schedule(seed, faults=0.2, deaths=False, operator=True, freezes=False)


@pytest.mark.parametrize("seed", range(300, 310))
@virtually
async def test_with_deaths_and_freezes_every_run_ends_and_nothing_recorded_is_repeated(seed: int) -> None:
    await schedule(seed, faults=0.15, deaths=True, operator=True, freezes=True)


@pytest.mark.parametrize("seed", range(400, 408))
@virtually
async def test_with_short_invocations_every_run_ends_and_nothing_outlives_its_invocation(seed: int) -> None:
    await schedule(seed, faults=0.15, deaths=False, operator=True, freezes=False, lambdas=True)
