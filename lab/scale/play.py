"""Runs carried by the real code on virtual time: submit, queue, worker processes or functions, to the last commit."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Final

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.language.workflow import version_of
from fanfold.engine.payload import Json
from fanfold.engine.ports import Registered
from fanfold.service.api.submit import Submission, Submitter
from fanfold.service.workflow_cache import WorkflowCache
from fanfold.testing import virtual_time
from lab.scale.deployment import Deployment, Kind
from lab.scale.fleet import LaneMapping, Process, Turn
from lab.scale.limits import Operation
from lab.scale.region import Course, Processor, Region
from lab.scale.services import services

TENANT: Final = "load"
STUCK_SECONDS: Final = 7_200.0
"""Virtual time after which runs that have not ended count as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a play came to: courses of runs, turns of batches, calls by operation, units used and refusals by limit.

    `refused` are submits that were not accepted; `real_seconds` is processor time of this machine.
    """

    courses: Sequence[Course]
    turns: Sequence[Turn]
    calls: Mapping[Operation, int]
    used: Mapping[Kind, float]
    throttled: Mapping[Kind, int]
    refused: int
    real_seconds: float


def by_processes(
    document: Mapping[str, Json], deployment: Deployment, *, workers: int, runs: int, call_seconds: float, seed: int = 0
) -> Played:
    """So many worker processes of one run each drain a backlog that is there when they begin, one after the other.

    They begin within the time of one call of the task, not all at once. Raises RuntimeError when a run does not end.
    """

    async def played(region: Region) -> tuple[list[Turn], int]:
        await _backlog(region, document, runs)
        rng = random.Random(seed)
        fleet = [Process(region) for _ in range(workers)]
        began = [asyncio.create_task(process.run(rng.random())) for process in fleet]
        await _ends(region, runs)
        for process in fleet:
            process.worker.stop()
        await asyncio.gather(*began)
        return [], 0

    return _on_virtual_time(deployment, call_seconds, seed, played)


def by_functions(
    document: Mapping[str, Json], deployment: Deployment, *, runs: int, call_seconds: float, seed: int = 0
) -> Played:
    """A burst that is in its lane when the first message is looked for, drained by the lane's mapping."""

    async def played(region: Region) -> tuple[list[Turn], int]:
        await _backlog(region, document, runs)
        return await _mapped(region, lambda: _ends(region, runs)), 0

    return _on_virtual_time(deployment, call_seconds, seed, played)


def arriving(
    document: Mapping[str, Json],
    deployment: Deployment,
    *,
    per_second: float,
    seconds: float,
    call_seconds: float,
    seed: int = 0,
) -> Played:
    """So many submits a second, at random moments, each in a sandbox of its own; a mapping works on them meanwhile."""

    async def played(region: Region) -> tuple[list[Turn], int]:
        await _register(region, document)
        cache = WorkflowCache(region.plain.catalog, region.settings.classes)
        rng, tasks, refused = random.Random(seed), [], []

        async def submits() -> None:
            while region.now < seconds:
                await asyncio.sleep(rng.expovariate(per_second))
                processor = Processor.of_function(deployment.memory_mb)
                submitter = Submitter(services(region, processor), cache)
                tasks.append(asyncio.create_task(submitter.submit(_submission(document))))
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, InfrastructureError):
                    refused.append(outcome)
                elif isinstance(outcome, BaseException):
                    raise outcome
            await _ends(region, len(tasks) - len(refused))

        return await _mapped(region, submits), len(refused)

    return _on_virtual_time(deployment, call_seconds, seed, played)


def _on_virtual_time(
    deployment: Deployment,
    call_seconds: float,
    seed: int,
    play: Callable[[Region], Coroutine[Any, Any, tuple[list[Turn], int]]],
) -> Played:
    """`play` gives the turns of batches, and how many submits were refused."""
    began = time.process_time()

    async def played() -> tuple[Region, list[Turn], int]:
        region = Region(deployment, call_seconds=call_seconds, seed=seed)
        return region, *await play(region)

    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        region, turns, refused = virtual_time.run(played())
    return Played(
        courses=[course for course in region.courses.values() if course.ended is not None],
        turns=turns,
        calls=Counter(region.calls),
        used=dict(region.gates.used),
        throttled=Counter(region.gates.refused),
        refused=refused,
        real_seconds=time.process_time() - began,
    )


def _submission(document: Mapping[str, Json]) -> Submission:
    return Submission(tenant=TENANT, workflow=str(document["name"]), request_hash="0" * 64)


async def _register(region: Region, document: Mapping[str, Json]) -> None:
    registered = Registered(
        name=str(document["name"]),
        version=version_of(document),
        document=dict(document),
        created_at=region.plain.clock.now(),
    )
    await region.plain.catalog.register(TENANT, registered)


async def _backlog(region: Region, document: Mapping[str, Json], runs: int) -> None:
    """Accept so many runs in no time, outside all limits."""
    await _register(region, document)
    submitter = Submitter(region.plain, WorkflowCache(region.plain.catalog, region.settings.classes))
    for _ in range(runs):
        run = (await submitter.submit(_submission(document))).run
        region.know(run)
        region.accepted(run.id)


async def _ends(region: Region, runs: int) -> None:
    async with asyncio.timeout(STUCK_SECONDS):
        while region.ended < runs:
            region.news.clear()
            await region.news.wait()


async def _mapped(region: Region, until: Callable[[], Coroutine[Any, Any, None]]) -> list[Turn]:
    """Have the lane's mapping invoke functions until something is over."""
    mapping = LaneMapping(region)
    polling = asyncio.create_task(mapping.poll())
    try:
        await until()
    finally:
        polling.cancel()
        await asyncio.wait({polling})
    if not polling.cancelled():
        polling.result()  # a poller that ended by itself has met a bug
    await mapping.quiet()
    return mapping.turns
