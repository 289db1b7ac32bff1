"""The attempts of one held run: started and stopped so that they match its record (R3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from fanfold.engine.errors import NotFound, PayloadLost
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json, Value
from fanfold.engine.record.run import Failure, Run, StepState, StepStatus
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.events import AttemptFailed, AttemptNotBegun, AttemptSucceeded, Emitted, Event
from fanfold.engine.rules.scheduling import attempt_input
from fanfold.service.maps import Maps
from fanfold.service.payloads import Payloads
from fanfold.service.retrying import insist
from fanfold.service.wiring import Services
from fanfold.service.worker.inline_maps import InlineMaps
from fanfold.service.worker.outcomes import failed
from fanfold.service.worker.task_runner import Failed, Job, NotBegun, Succeeded, TaskRunner
from fanfold.tasks.registry import find


class Attempt(NamedTuple):
    """An attempt's name within its run."""

    step: str
    number: int


def _nobody(event: Event) -> None:
    """Who listens when all attempts have been stopped."""


def _no_end() -> datetime | None:
    return None


class Stopwatch:
    """How long at least one of several things was going on; `monotonic` tells the time in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._users = 0
        self._since = 0.0
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """How long it has run until now."""
        return self._before + (self._monotonic() - self._since if self._users else 0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs within."""
        if self._users == 0:
            self._since = self._monotonic()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._before += self._monotonic() - self._since


class RunningAttempts:
    """The running attempts of one run. Results go to `post`, as events. `at_work` runs while an attempt does."""

    def __init__(
        self,
        services: Services,
        attempts: TaskRunner,
        workflow: Workflow,
        payloads: Payloads,
        post: Callable[[Event], None],
        *,
        stop_before: Callable[[], datetime | None] = _no_end,
    ) -> None:
        self._services = services
        self._attempts = attempts
        self._workflow = workflow
        self._payloads = payloads
        self._post = post
        self._stop_before = stop_before
        self._maps = Maps(services)
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._halted = False
        self._begun: set[Attempt] = set()
        self.at_work = Stopwatch(services.clock.monotonic)

    def match(self, record: Run, inputs: Mapping[Attempt, Json]) -> None:
        """Start what the record calls started and is not running, stop what runs and it does not call started.

        `inputs` are those just evaluated; any other is derived from the record.
        """
        # In the record's order, so that the same record always takes the same course.
        wanted = {
            Attempt(name, state.attempts): None
            for name, state in record.steps.items()
            if state.status is StepStatus.RUNNING or self._to_be_looked_at(state)
        }
        for attempt in [running for running in self._running if running not in wanted]:
            self._running.pop(attempt).cancel()
        for attempt in () if self._halted else [new for new in wanted if new not in self._running]:
            task = asyncio.create_task(self._execute(record, attempt, inputs), name=f"{record.id}/{attempt.step}")
            self._running[attempt] = task
            self._begun.add(attempt)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _to_be_looked_at(self, state: StepState) -> bool:
        """Whether the step is a distributed map, and a look at it is due: the look is its execution here."""
        open_distributed_maps = state.status is StepStatus.WAITING and state.map is not None
        return open_distributed_maps and state.due_at is not None and state.due_at <= self._services.clock.now()

    def never_begun(self, record: Run) -> Sequence[AttemptNotBegun]:
        """What the record calls started and was not begun here: it comes to nothing."""
        return [
            AttemptNotBegun(step=name, attempt=state.attempts)
            for name, state in record.steps.items()
            if state.status is StepStatus.RUNNING and Attempt(name, state.attempts) not in self._begun
        ]

    def halt(self) -> None:
        """Stop all at once, and start none any more."""
        self._halted = True
        for task in self._running.values():
            task.cancel()

    async def stop(self) -> None:
        """Stop all, and wait until those that can be stopped have; also when the caller is cancelled meanwhile.

        None is started any more, and nothing posted.
        """
        self.halt()
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            # No grace for them any more: whoever breaks a run off has no time, and none may outlive its loop.
            for task in self._tasks:
                task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
            raise
        finally:
            # Both are their owner's, which has this: without the circle the run's payloads are gone when the run is.
            self._post, self._stop_before = _nobody, _no_end

    async def _execute(self, record: Run, attempt: Attempt, inputs: Mapping[Attempt, Json]) -> None:
        try:
            self._post(await self._outcome(record, attempt, inputs))
        except Exception as error:  # a bug of ours must end the attempt, not leave it running for ever
            self._post(self._failed(attempt, failed("internal", repr(error), retryable=True)))
            raise

    async def _outcome(self, record: Run, attempt: Attempt, inputs: Mapping[Attempt, Json]) -> Event:
        state = record.steps[attempt.step]
        if state.status is StepStatus.WAITING:
            with self.at_work.running():
                return await insist(self._services.clock, lambda: self._maps.look(record, self._workflow, attempt.step))
        if state.map is not None:
            try:
                with self.at_work.running():
                    return await self._inline_maps().run(record, attempt.step, stop_before=self._stop_before)
            except PayloadLost as error:
                return self._unavailable(attempt, error)
        if attempt in inputs:
            return await self._attempted(record, attempt, inputs)
        seconds = self._workflow.calling(attempt.step).timeout_seconds
        with self.at_work.running():
            async with self._attempts.large_inputs.slot(lambda: self._in_time(seconds)) as begun:
                if begun:
                    return await self._attempted(record, attempt, inputs)
        return AttemptNotBegun(step=attempt.step, attempt=attempt.number)

    def _inline_maps(self) -> InlineMaps:
        return InlineMaps(self._services, self._attempts, self._workflow, self._payloads)

    async def _attempted(self, record: Run, attempt: Attempt, inputs: Mapping[Attempt, Json]) -> Event:
        try:
            job = await self._job(record, attempt, inputs)
        except (ExpressionError, NotFound) as error:
            return self._unavailable(attempt, error)

        def emit(data: Json) -> None:
            self._post(Emitted(step=attempt.step, attempt=attempt.number, data=data))

        with self.at_work.running():
            outcome = await self._attempts.run(job, emit=emit)
        if isinstance(outcome, Failed):
            return self._failed(attempt, outcome)
        if isinstance(outcome, NotBegun):
            return AttemptNotBegun(step=attempt.step, attempt=attempt.number)
        return AttemptSucceeded(
            step=attempt.step, attempt=attempt.number, output=await self._output(record, attempt, outcome)
        )

    async def _job(self, record: Run, attempt: Attempt, inputs: Mapping[Attempt, Json]) -> Job:
        step = self._workflow.calling(attempt.step)
        if attempt in inputs:
            value = inputs[attempt]
        else:
            value = await self._payloads.provide(
                record, lambda loaded: attempt_input(record, self._workflow, attempt.step, loaded), patient=True
            )
        return Job(
            tenant=record.tenant,
            run_id=record.id,
            submission=record.submission,
            step=attempt.step,
            attempt=attempt.number,
            epoch=record.epoch,
            task=step.task,
            input=value,
            needs=await self._needs(record, step.task, step.needs),
            timeout_seconds=step.timeout_seconds,
            in_time=lambda: self._in_time(step.timeout_seconds),
        )

    def _in_time(self, timeout_seconds: float) -> bool:
        """Whether an attempt that begins now ends before the time to stop (R11)."""
        stop_before = self._stop_before()
        return stop_before is None or self._services.clock.now() + timedelta(seconds=timeout_seconds) <= stop_before

    async def _needs(self, record: Run, task: str, needs: tuple[str, ...]) -> dict[str, Json]:
        try:
            wanted = find(task, chaos=self._services.settings.chaos).wants_needs
        except NotFound:
            return {}  # the attempt itself fails, and says why
        if not wanted:
            return {}
        steps = Steps(record, self._workflow)
        outputs = await self._payloads.provide(
            record, lambda loaded: {name: steps.checkpoint(name, loaded).output for name in needs}, patient=True
        )
        return {name: await self._payloads.load(output, patient=True) for name, output in outputs.items()}

    async def _output(self, record: Run, attempt: Attempt, outcome: Succeeded) -> Value:
        """The output as it goes into the record: big ones are in S3 before the record names them."""
        if len(outcome.encoded) <= self._services.settings.inline_bytes:
            return outcome.output
        name = f"{attempt.step}/{record.epoch}-{attempt.number}"
        return await self._payloads.store(record, name, outcome.output, outcome.encoded, patient=True)

    def _unavailable(self, attempt: Attempt, error: Exception) -> AttemptFailed:
        """What its task would be given is not to be had."""
        failure = Failure(type="input_unavailable", message=str(error))
        return self._failed(attempt, Failed(failure=failure, retryable=False))

    def _failed(self, attempt: Attempt, outcome: Failed) -> AttemptFailed:
        return AttemptFailed(
            step=attempt.step,
            attempt=attempt.number,
            failure=outcome.failure,
            retryable=outcome.retryable,
            chance=self._services.ids.random(),
            after_seconds=outcome.after,
        )
