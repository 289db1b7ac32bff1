"""Many submits in one call: each has the same result as alone, but they share calls to AWS.

One read finds all replays, one read each workflow (in each lane), and a send has ten messages. Reservations and records
are separate conditional writes, made concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from fanfold.engine.admission.lanes import LaneLimit, LaneRequest
from fanfold.engine.errors import Unreadable
from fanfold.engine.record.messages import QueueName
from fanfold.service.api.submit import Prepared, Submission, Submitted, Submitter, replay, run_key

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Outcome = Submitted | Exception


async def submit_many(submitter: Submitter, asked: Sequence[Submission]) -> Sequence[Outcome]:
    """What `Submitter.submit` would return or raise for each of at most 100 submissions, in order.

    Raises an `InfrastructureError` only before anything was done, if the read for replays fails.
    """
    outcomes: dict[int, Outcome] = await _replays(submitter, asked)
    fresh = [position for position in range(len(asked)) if position not in outcomes]
    workflows = await _each({_named(asked[position]): asked[position] for position in fresh}, submitter.workflow)

    async def prepare(submission: Submission) -> Prepared:
        workflow = workflows[_named(submission)]
        if isinstance(workflow, Exception):
            raise workflow
        return await submitter.prepare(submission, workflow)

    prepared: dict[int, Prepared] = {}
    for position, result in (await _each({position: asked[position] for position in fresh}, prepare)).items():
        if isinstance(result, Exception):
            outcomes[position] = result
        else:
            prepared[position] = result
    outcomes |= await _sent(submitter, prepared)
    return [outcomes[position] for position in range(len(asked))]


async def _replays(submitter: Submitter, asked: Sequence[Submission]) -> dict[int, Outcome]:
    """The results of submits whose key was used before."""
    keys = {position: key for position, one in enumerate(asked) if (key := run_key(one)) is not None}
    if not keys:
        return {}
    recorded = await submitter.services.runs.get_many(list(keys.values()), now=submitter.services.clock.now())

    async def found(position: int) -> Submitted:
        run = recorded[keys[position]]
        if isinstance(run, Unreadable):
            raise run
        return replay(run, asked[position])

    return await _each({position: position for position, key in keys.items() if key in recorded}, found)


async def _sent(submitter: Submitter, prepared: Mapping[int, Prepared]) -> dict[int, Outcome]:
    """Send all, queue by queue. Each submit then continues by the result of its own message."""
    by_queue: dict[QueueName, list[int]] = {}
    for position, one in prepared.items():
        by_queue.setdefault(one.queue, []).append(position)

    async def of_queue(queue: QueueName) -> dict[int, Outcome]:
        positions = by_queue[queue]
        errors = await submitter.services.queue.send_many(
            queue, [prepared[position].outgoing for position in positions]
        )
        told = dict(zip(positions, errors, strict=True))

        async def conclude(position: int) -> Submitted:
            return await submitter.conclude(prepared[position], told[position])

        return await _each({position: position for position in positions}, conclude)

    outcomes: dict[int, Outcome] = {}
    for of_one in await asyncio.gather(*map(of_queue, by_queue)):
        outcomes |= of_one
    return outcomes


async def _each(items: Mapping[K, V], work: Callable[[V], Awaitable[T]]) -> dict[K, T | Exception]:
    """Run `work` for all items concurrently. Returns each result or error; no error stops the others."""
    results = await asyncio.gather(*map(work, items.values()), return_exceptions=True)
    outcomes: dict[K, T | Exception] = {}
    for key, result in zip(items, results, strict=True):
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result  # this call itself was given up
        outcomes[key] = result
    return outcomes


def _named(asked: Submission) -> tuple[str, str, str | None, LaneRequest, LaneLimit]:
    """The facts that decide which workflow a submit gets, and whether it is allowed."""
    return asked.tenant, asked.workflow, asked.workflow_version, asked.urgency, asked.bound
