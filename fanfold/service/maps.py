"""What the holder of a run, or whoever looks at it, does for its maps: pin, start, look, put the results together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fanfold.engine.errors import NotFound
from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.maps import (
    Batch,
    Folded,
    ItemResult,
    MapRecord,
    MapState,
    Progress,
    Via,
    batches_json,
    batches_key,
    digest,
    execution_name,
    fold,
    missing,
    progress,
    split,
    unended,
)
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Json, Value, dump
from fanfold.engine.ports import Execution, MapKey
from fanfold.engine.record.run import Failure, Run, StepState
from fanfold.engine.rules.engine_limits import KEPT_FOR
from fanfold.engine.rules.events import AttemptFailed, MapEnded, MapStillRunning, MapThrottled
from fanfold.service.gather import together
from fanfold.service.payloads import payload_key
from fanfold.service.setting_bounds import MAX_RECORD_BYTES
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services

INLINE_PLAN_BYTES = 1_024
"""A plan over this is kept in S3: every commit writes the whole head, and would cost another write unit."""

LOADERS = 16
"""Outputs of items loaded from S3 at once."""


def map_key(run: Run, step: str) -> MapKey:
    """Where the records of a run's map are."""
    return MapKey(tenant=run.tenant, run_id=run.id, submission=run.submission, step=step)


def execution_of(run: Run, step: str) -> Execution:
    """The execution of an open distributed map, the same whoever asks."""
    state = state_of(run.steps[step])
    if not isinstance(state.plan, BlobRef):
        raise TypeError("the plan of a distributed map is in S3 before the record names it")
    return Execution(
        name=execution_name(run.id, run.submission, step, run.try_number, state.again),
        class_name=run.class_name,
        tenant=run.tenant,
        run_id=run.id,
        submission=run.submission,
        step=step,
        try_number=run.try_number,
        batches=batches_key(state.plan, state.again),
        batches_at_once=state.batches_at_once,
    )


def state_of(step: StepState) -> MapState:
    """The map in a step's state; only for a map that has begun."""
    assert step.map is not None, "the step is no map, or has not begun"
    return step.map


class Maps:
    """The maps of runs. Every method may raise an `InfrastructureError`; none changes a record of a run."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._inline_bytes = services.settings.inline_bytes

    # --- beginning ------------------------------------------------------------------------------

    async def pinned(self, run: Run) -> Run:
        """The record to be written, with the plans of maps that begin, and what they are to be cut into, in S3."""
        pinned: dict[str, StepState] = {}
        for name, step in run.steps.items():
            if step.map is None or step.settled or step.map.plan is None or isinstance(step.map.plan, BlobRef):
                continue
            data = dump(step.map.plan)
            if step.map.via is Via.STEP_FUNCTIONS or len(data) > INLINE_PLAN_BYTES:
                pinned[name] = replace(step, map=replace(step.map, plan=await self._store(run, name, step.map, data)))
        return replace(run, steps={**run.steps, **pinned}) if pinned else run

    async def _store(self, run: Run, name: str, state: MapState, data: bytes) -> BlobRef:
        # The write id is drawn anew for each put of a head, so that no key is used twice.
        key = payload_key(run.tenant, run.id, run.submission, f"{name}/map-{run.try_number}-{run.write_id}")
        blobs = self._services.blobs
        if state.via is Via.INLINE:
            return await blobs.put(key, data)
        todo: Sequence[int] = range(state.items)
        if run.try_number > 1:
            todo = missing(state.items, await self.records(run, name), digest(state.plan))
        # A state machine need not take an empty list.
        batches = split(todo, state.batch_size) or (Batch(first=0, end=0),)
        lists = blobs.put(f"{key}.batches", batches_json(batches))
        ref, _ = await together(blobs.put(key, data), lists)
        return ref

    async def start(self, run: Run, step: str) -> None:
        """Have the items of an open map worked on elsewhere; again: no change."""
        await self._services.fan_out.start(execution_of(run, step))

    # --- looking --------------------------------------------------------------------------------

    async def look(
        self, run: Run, workflow: Workflow, step: str, *, signalled: bool = False
    ) -> MapStillRunning | MapThrottled | MapEnded | AttemptFailed:
        """Poll an open distributed map: is it still running? A map that was never started is started.

        `signalled`: a wake says that the map has ended. A map whose items all have a record has ended, whatever Step
        Functions says about the execution, because its answer lags.
        """
        state, attempt = state_of(run.steps[step]), run.steps[step].attempts
        plan = digest(state.plan)
        records = await self.records(run, step)
        if unended(state.items, records, plan=plan, try_number=run.try_number):
            execution, fan_out = execution_of(run, step), self._services.fan_out
            if await fan_out.start(execution) or await fan_out.going(execution):
                return MapStillRunning(step=step, attempt=attempt, signalled=signalled)
            # What was recorded meanwhile; what still is not has failed, unless there was no room for it.
            records = await self.records(run, step)
            left = unended(state.items, records, plan=plan, try_number=run.try_number)
            if left and await fan_out.throttled(execution):
                # Who looks at the same time lists the same items or fewer: whichever list stands, none is missing.
                assert isinstance(state.plan, BlobRef), "a distributed map has its plan in S3"
                batches = batches_json(split(left, state.batch_size))
                await self._services.blobs.put(batches_key(state.plan, state.again + 1), batches)
                return MapThrottled(step=step, attempt=attempt, again=state.again)
        folded = fold(state.items, records, plan=digest(state.plan), try_number=run.try_number)
        return await self.ended(run, workflow, step, folded)

    async def records(self, run: Run, step: str) -> Sequence[MapRecord]:
        """What the batches of a map left behind, in all tries."""
        records = await self._services.map_records.read(map_key(run, step))
        if damaged := [record for record in records if record.damage]:
            count(Metric.UNREADABLE, len(damaged))
            facts = {"run_id": run.id, "step": step, "batches": len(damaged), "why": damaged[0].damage}
            logger().warning("records of batches can't be read: what is known of their items is lost", extra=facts)
        return records

    async def progress(self, run: Run) -> Mapping[str, Progress]:
        """How far the open maps of a run are, as far as it is recorded: one query for each."""
        open_maps = [
            (name, step.map)
            for name, step in run.steps.items()
            if step.map is not None and not step.settled and step.map.plan is not None
        ]
        records = await together(*(self.records(run, name) for name, _ in open_maps))
        return {
            name: progress(found, plan=digest(state.plan), try_number=run.try_number)
            for (name, state), found in zip(open_maps, records, strict=True)
        }

    # --- ending ---------------------------------------------------------------------------------

    async def ended(self, run: Run, workflow: Workflow, step: str, folded: Folded) -> MapEnded | AttemptFailed:
        """The end of a map whose items all have one; its outputs are put together unless too many failed."""
        attempt = run.steps[step].attempts
        items = len(folded.results)
        output: Value = None
        if map_step_of(workflow, step).tolerate.bears(folded.failed, items):
            try:
                output = await self._output(run, step, folded)
            except (_TooLarge, NotFound) as error:
                kind = "output_too_large" if isinstance(error, _TooLarge) else "output_gone"
                failure = Failure(type=kind, message=str(error))
                return AttemptFailed(step=step, attempt=attempt, failure=failure, retryable=False, chance=0.0)
        return MapEnded(step=step, attempt=attempt, output=output, failed=folded.failed, errors=folded.errors)

    async def _output(self, run: Run, step: str, folded: Folded) -> Value:
        """The list of the items' outputs, null for those that failed; by reference where it is big."""
        limit = self._services.settings.max_map_bytes
        referred = sum(result.output.bytes for result in folded.results if isinstance(result.output, BlobRef))
        if referred > limit:
            raise _TooLarge(referred, limit)
        few = asyncio.Semaphore(LOADERS)

        async def load(result: ItemResult) -> Json:
            if not isinstance(result.output, BlobRef):
                return result.output
            async with few:
                return await self._services.blobs.get(result.output)

        outputs = await together(*(load(result) for result in folded.results))
        data = dump(outputs)
        if len(data) > limit:
            raise _TooLarge(len(data), limit)
        if len(data) <= self._inline_bytes:
            return outputs
        # Two may look at once, and need not see the same: each stores under a name of its own.
        name = f"{step}/map-{run.try_number}-output-{self._services.ids.token()}"
        return await self._services.blobs.put(payload_key(run.tenant, run.id, run.submission, name), data)

    async def record(self, run: Run, step: str, plan: str, results: Sequence[ItemResult]) -> None:
        """Record the ends of items (a few: `map_batch` at most); big outputs are in S3 before."""
        # The map's batches may be of a time when outputs that are kept here were smaller, or batches bigger.
        limit = min(self._inline_bytes, MAX_RECORD_BYTES // len(results))
        spilled = await together(*(self._spilled(run, step, result, limit) for result in results))
        record = MapRecord(
            try_number=run.try_number,
            first=min(result.index for result in results),
            plan=plan,
            results=tuple(sorted(spilled, key=lambda result: result.index)),
        )
        await self._services.map_records.put(map_key(run, step), record, expires_at=self._expiry())

    async def _spilled(self, run: Run, step: str, result: ItemResult, limit: int) -> ItemResult:
        if result.output is None or isinstance(result.output, BlobRef):
            return result
        data = dump(result.output)
        if len(data) <= limit:
            return result
        name = f"{step}/item-{result.index}-{run.try_number}-{self._services.ids.token()}"
        ref = await self._services.blobs.put(payload_key(run.tenant, run.id, run.submission, name), data)
        return replace(result, output=ref)

    def _expiry(self) -> datetime:
        return self._services.clock.now() + KEPT_FOR


def map_step_of(workflow: Workflow, name: str) -> MapStep:
    """The step of that name, which is a map."""
    step = workflow.steps[name]
    assert isinstance(step, MapStep), "the step is no map"
    return step


class _TooLarge(Exception):
    """The outputs of a map together are over the limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the outputs together have {size:,} bytes; the limit is {limit:,} (setting max_map_bytes)")
