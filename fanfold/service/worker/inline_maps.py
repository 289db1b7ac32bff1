"""A map whose items are worked on by the worker that holds the run.

A map that is done within a second leaves no records of its own: its results go into the run's record at
once. What takes longer is recorded as it ends, about once a second, so that a worker's death or the end
of its time costs only what was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.language.maps import Folded, ItemResult, digest, known
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.record.run import Failure, Run
from fanfold.engine.rules.events import AttemptFailed, MapEnded, MapYielded
from fanfold.service.maps import Maps, map_step_of, state_of
from fanfold.service.payloads import Payloads
from fanfold.service.retrying import insist
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services
from fanfold.service.worker.map_items import Items, Unfinished
from fanfold.service.worker.task_runner import TaskRunner

RECORD_SECONDS = 1.0
"""What has ended is recorded at most this long after it."""

MOST_HAND_OVERS = 20
"""So often a map is handed to another worker for want of time; after that, items that do not fit have failed."""


class InlineMaps:
    """Maps in the worker that holds their run."""

    def __init__(
        self,
        services: Services,
        attempts: TaskRunner,
        workflow: Workflow,
        payloads: Payloads,
    ) -> None:
        self._services = services
        self._attempts = attempts
        self._workflow = workflow
        self._payloads = payloads
        self._maps = Maps(services)

    async def run(
        self, record: Run, step: str, *, stop_before: Callable[[], datetime | None]
    ) -> MapEnded | MapYielded | AttemptFailed:
        """Work on every item that has no end yet; `MapYielded` when the time did not suffice.

        `stop_before` says until when there is time (None: without end).
        """
        state = state_of(record.steps[step])
        plan = await self._payloads.load(state.plan, patient=True)
        one = _OneMap(self._services, self._maps, record, step, digest(state.plan))
        if record.try_number > 1 or record.steps[step].attempts > 1:
            records = await insist(self._services.clock, lambda: self._maps.records(record, step))
            if lost := [each for each in records if each.damage and each.try_number == record.try_number]:
                # Which items it tells of nobody knows; none whose end was recorded may be worked on again in this try.
                failure = Failure(type="items_unreadable", message=lost[0].damage)
                attempt = record.steps[step].attempts
                return AttemptFailed(step=step, attempt=attempt, failure=failure, retryable=False, chance=0.0)
            one.ended = known(records, plan=one.plan, try_number=record.try_number)
        todo = [index for index in range(state.items) if index not in one.ended]
        items = Items(
            self._services,
            self._attempts,
            record,
            map_step_of(self._workflow, step),
            plan,
            stop_before=stop_before,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(one.keep_recording())
            left = await self._work(items, one, todo, step)
            one.stop_recording()
        if left and record.steps[step].attempts <= MOST_HAND_OVERS:
            await one.record_all()
            return MapYielded(step=step, attempt=record.steps[step].attempts)
        for unfinished in left:
            one.end(unfinished.given_up())
        return await self._end(record, step, one)

    async def _work(self, items: Items, one: _OneMap, todo: list[int], step: str) -> list[Unfinished]:
        """Works on the items, `max_concurrency` at once; returns those there was no time for."""
        indexes: Iterator[int] = iter(todo)
        left: list[Unfinished] = []

        async def worker() -> None:
            for index in indexes:
                result = await items.work(index)
                if isinstance(result, Unfinished):
                    left.append(result)
                else:
                    one.end(result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(map_step_of(self._workflow, step).max_concurrency, len(todo))):
                group.create_task(worker())
        return left

    async def _end(self, record: Run, step: str, one: _OneMap) -> MapEnded | AttemptFailed:
        results = tuple(result for _, result in sorted(one.ended.items()))
        folded = Folded(results=results, failed=sum(result.error is not None for result in results))
        if not map_step_of(self._workflow, step).tolerate.bears(folded.failed, len(results)):
            # A redrive repeats what failed, and nothing else.
            await one.record_all()
        return await insist(self._services.clock, lambda: self._maps.ended(record, self._workflow, step, folded))


class _OneMap:
    """What has ended of one map, and which part of it is not recorded yet."""

    def __init__(self, services: Services, maps: Maps, run: Run, step: str, plan: str) -> None:
        self._services = services
        self._maps = maps
        self._run = run
        self._step = step
        self.plan = plan
        self.ended: dict[int, ItemResult] = {}
        self._unrecorded: list[ItemResult] = []
        self._at_hand: list[ItemResult] = []
        self._stop = asyncio.Event()

    def end(self, result: ItemResult) -> None:
        """An item has ended."""
        self.ended[result.index] = result
        count(Metric.MAP_ITEMS, of=(self._run.class_name,))
        self._unrecorded.append(result)

    async def keep_recording(self) -> None:
        """Record what has ended, again and again, until told to stop."""
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(RECORD_SECONDS):
                    await self._stop.wait()
            except TimeoutError:
                await self._try_to_record()

    def stop_recording(self) -> None:
        """What is not recorded by now waits for `record_all`. A record under way is carried through."""
        self._stop.set()

    async def _try_to_record(self) -> None:
        try:
            await self._record()
        except InfrastructureError as error:
            facts = {"run_id": self._run.id, "step": self._step, "error": repr(error)}
            logger().warning("items were not recorded yet", extra=facts)

    async def record_all(self) -> None:
        """Record all that has ended."""
        await insist(self._services.clock, self._record)

    async def _record(self) -> None:
        while self._at_hand or self._unrecorded:
            if not self._at_hand:
                size = self._services.settings.map_batch
                self._at_hand, self._unrecorded = self._unrecorded[:size], self._unrecorded[size:]
            # The same ones until it is done: a record that was written unanswered would keep others out.
            await self._maps.record(self._run, self._step, self.plan, self._at_hand)
            self._at_hand = []
