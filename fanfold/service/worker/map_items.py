"""One item of a map: its attempts, one after the other in one worker, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fanfold.engine.language.budget import Budget
from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.maps import ItemError, ItemResult, item_input
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.payload import Json
from fanfold.engine.record.run import Failure, Run
from fanfold.engine.rules.retry import delay
from fanfold.service.wiring import Services
from fanfold.service.worker.task_runner import Job, NotBegun, Succeeded, TaskRunner

LONGEST_PAUSE = timedelta(minutes=1)
"""Longest delay between two attempts at an item: it is waited for in the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """There is no time left for a further attempt at the item; `failure` is what the last one met, if there was one."""

    index: int
    failure: Failure | None

    def given_up(self) -> ItemResult:
        """The item as failed: nobody else will go on with it."""
        failure = self.failure or Failure(type="no_time", message="there was no time to begin the item")
        return _failed(self.index, failure)


class Items:
    """Works on items of one map of one run. `stop_before` says until when attempts may go on (None: without end)."""

    def __init__(
        self,
        services: Services,
        attempts: TaskRunner,
        run: Run,
        step: MapStep,
        plan: Json,
        *,
        stop_before: Callable[[], datetime | None],
    ) -> None:
        self._services = services
        self._attempts = attempts
        self._run = run
        self._step = step
        self._plan = plan
        self._stop_before = stop_before
        self._making = asyncio.Lock()

    async def work(self, index: int) -> ItemResult | Unfinished:
        """The item's end, after as many attempts as its step grants it, or as there is time for."""
        try:
            value = await self._input(index)
        except ExpressionError as error:
            return _failed(index, Failure(type=error.failure_type, message=str(error)))
        failure: Failure | None = None
        pause = timedelta(0)
        for number in range(1, self._step.retry.max_attempts + 1):
            if not self._time_for(pause):
                return Unfinished(index=index, failure=failure)
            if pause:
                await self._services.clock.sleep(pause.total_seconds())
            outcome = await self._attempts.run(self._job(index, number, value), emit=_nowhere)
            if isinstance(outcome, NotBegun):
                return Unfinished(index=index, failure=failure)
            if isinstance(outcome, Succeeded):
                return ItemResult(index=index, output=outcome.output)
            failure = outcome.failure
            if not outcome.retryable:
                break
            chance = self._services.ids.random()
            wait = delay(self._step.retry, failures=number, chance=chance, after_seconds=outcome.after)
            pause = min(wait, LONGEST_PAUSE)
        assert failure is not None, "a step grants at least one attempt"
        return _failed(index, failure)

    async def _input(self, index: int) -> Json:
        """What the item is given. Many items are worked on at once: what is costly is made for one after the other."""
        budget = Budget()
        async with self._making:
            try:
                return item_input(self._step.input, self._plan, index, budget)
            finally:
                if budget.noticeable:
                    await asyncio.sleep(0)

    def _time_for(self, pause: timedelta) -> bool:
        stop_before = self._stop_before()
        needed = pause + timedelta(seconds=self._step.timeout_seconds)
        return stop_before is None or self._services.clock.now() + needed <= stop_before

    def _job(self, index: int, number: int, value: Json) -> Job:
        return Job(
            tenant=self._run.tenant,
            run_id=self._run.id,
            submission=self._run.submission,
            step=self._step.name,
            index=index,
            attempt=number,
            epoch=self._run.epoch,
            task=self._step.task,
            input=value,
            timeout_seconds=self._step.timeout_seconds,
            in_time=lambda: self._time_for(timedelta(0)),
        )


def _failed(index: int, failure: Failure) -> ItemResult:
    return ItemResult(index=index, error=ItemError(index=index, type=failure.type, message=failure.message))


def _nowhere(data: Json) -> None:
    """Items' progress goes nowhere: thousands of them would fill the run's journal."""
