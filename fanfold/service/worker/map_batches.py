"""One batch of a map's items, worked on in a function of its own and recorded together (R9)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fanfold.engine.language.maps import Batch, ItemResult, digest
from fanfold.engine.payload import BlobRef, Json
from fanfold.engine.ports import MapKey, RunKey
from fanfold.engine.record.run import Run, StepStatus
from fanfold.service.gather import both
from fanfold.service.maps import Maps, map_step_of, state_of
from fanfold.service.process_environment import ProcessEnvironment
from fanfold.service.retrying import insist
from fanfold.service.settings import Settings
from fanfold.service.task_modules import load_tasks
from fanfold.service.telemetry.reporting import FunctionName, Metric, about, begin, count, flush, logger
from fanfold.service.wiring import Services, services
from fanfold.service.worker.map_items import Items, Unfinished
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.workflow_cache import WorkflowCache

MARGIN = timedelta(seconds=15)
"""What a batch keeps of its time for recording what its items gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the state machine asks for: these items of this map, in this try of this life of the run."""

    tenant: str
    run_id: str
    submission: str
    step: str
    try_number: int
    batch: Batch

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Order:
        """The order in a function's event."""
        return cls(
            tenant=event["tenant"],
            run_id=event["run"],
            submission=event["submission"],
            step=event["step"],
            try_number=event["try"],
            batch=Batch(first=event["batch"]["from"], end=event["batch"]["to"]),
        )


class BatchEnd(StrEnum):
    """What became of a batch."""

    RECORDED = "recorded"  # its items have ended, and it is written down how
    KNOWN = "known"  # it was recorded before
    VOID = "void"  # nobody waits for it: the run or its try is over


class MapBatches:
    """Works on batches. Keeps the last plan: the batches of a map come one after the other."""

    def __init__(self, services: Services, workflows: WorkflowCache, attempts: TaskRunner) -> None:
        self._services = services
        self._workflows = workflows
        self._attempts = attempts
        self._maps = Maps(services)
        self._plans: dict[str, Json] = {}

    async def work(self, order: Order, *, until: datetime) -> BatchEnd:
        """Work on the batch, unless nobody waits for it, and record it; attempts at its items end before `until`.

        Raises an `InfrastructureError` while nothing was begun.
        """
        with about(order.run_id):
            return await self._work(order, until)

    async def _work(self, order: Order, until: datetime) -> BatchEnd:
        reading = self._services.runs.get(
            RunKey(tenant=order.tenant, run_id=order.run_id), now=self._services.clock.now()
        )
        asking = self._services.map_records.has(_key(order), try_number=order.try_number, first=order.batch.first)
        run, known = await both(reading, asking)
        if known:
            return BatchEnd.KNOWN
        if run is None or order.batch.first >= order.batch.end or not _waits(run, order):
            return BatchEnd.VOID
        workflow = await self._workflows.of(run)
        state = state_of(run.steps[order.step])
        plan = await self._plan(state.plan)
        step = map_step_of(workflow, order.step)
        items = Items(self._services, self._attempts, run, step, plan, stop_before=lambda: until - MARGIN)

        async def end_of(index: int) -> ItemResult:
            result = await items.work(index)
            return result.given_up() if isinstance(result, Unfinished) else result

        results = await asyncio.gather(*(end_of(index) for index in range(order.batch.first, order.batch.end)))
        await insist(self._services.clock, lambda: self._maps.record(run, order.step, digest(state.plan), results))
        count(Metric.MAP_BATCHES)
        count(Metric.MAP_ITEMS, len(results), of=(run.class_name,))
        return BatchEnd.RECORDED

    async def _plan(self, plan: Json | BlobRef) -> Json:
        if not isinstance(plan, BlobRef):
            return plan
        if plan.key not in self._plans:
            self._plans = {plan.key: await self._services.blobs.get(plan)}
        return self._plans[plan.key]


class BatchInvocations:
    """A sandbox's batches: clients, workflows and the loop stay warm, nothing else outlives an invocation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._attempts = TaskRunner(services.settings, services.clock)
        workflows = WorkflowCache(services.catalog, services.settings.classes, aside=services.aside)
        self._batches = MapBatches(services, workflows, self._attempts)
        self._loop = asyncio.Runner()
        self._surroundings = ProcessEnvironment()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> BatchInvocations:
        """The batches' worker as the function's environment describes it."""
        settings = Settings.from_env(environ)
        begin(settings, FunctionName.FANOUT)
        load_tasks(settings, secrets=True)
        return cls(services(settings))

    def work(self, event: Mapping[str, Any], *, seconds_left: float) -> str:
        """Work on an event's batch; returns what became of it.

        When a task would not stop, the sandbox ends here and does not come back: the batch is
        recorded by then, so that its repetition does nothing.
        """
        self._surroundings.restore()
        order = Order.from_event(event)
        until = self._services.clock.now() + timedelta(seconds=seconds_left)
        try:
            end = self._loop.run(self._batches.work(order, until=until))
            facts = {"run_id": order.run_id, "step": order.step, "first": order.batch.first, "end": end.value}
            logger().debug("batch worked on", extra=facts)
        finally:
            flush()
        if self._attempts.lingering:
            os._exit(1)
        return end.value


def _waits(run: Run, order: Order) -> bool:
    """Whether the run still waits for this try of the map."""
    step = run.steps.get(order.step)
    return (
        run.submission == order.submission
        and run.try_number == order.try_number
        and not run.terminal
        and step is not None
        and step.status is StepStatus.WAITING
        and step.map is not None
    )


def _key(order: Order) -> MapKey:
    return MapKey(tenant=order.tenant, run_id=order.run_id, submission=order.submission, step=order.step)
