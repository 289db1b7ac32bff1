"""One execution of a task: on the loop or in a thread, under a timeout, with an outcome whatever happens.

Nothing a task does gets out of here but its outcome: what it raises, even SystemExit, what it
returns that is no JSON, and a timeout are `Failed`. One thing can't be contained: an `async` task
that blocks the event loop blocks its worker (the lease runs out and another takes the runs over).

Plain functions run in daemon threads of their own, at most `settings.concurrency` at a time. Daemon
threads because Python joins an executor's threads at exit, and a thread that never ends would
then keep a spent process (R7) alive; and because a thread given up must not take a pool's slot
from runs that still have to finish. A step's time begins when its function does: the wait for a thread
is not part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fanfold.engine.errors import NotFound
from fanfold.engine.payload import Json
from fanfold.engine.ports import Clock
from fanfold.engine.record.run import Failure
from fanfold.service.settings import Settings
from fanfold.service.worker.loop_callback import Line
from fanfold.service.worker.outcomes import Failed, NotBegun, Outcome, Succeeded, encoded, failed, raised
from fanfold.service.worker.thread_slots import ThreadSlots
from fanfold.tasks.context import Context
from fanfold.tasks.registry import Find, NotLoaded, TaskDef, find

_GRAIN_SECONDS = 0.01
"""The shortest wait for a grace to be over: a clock may wake a moment early."""

GRACE_SECONDS = 2.0
"""How long a task may go on after it was told to stop before its process counts as spent."""

__all__ = ["GRACE_SECONDS", "Failed", "Job", "NotBegun", "Outcome", "Succeeded", "TaskRunner"]


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An attempt to make: which task for which step, with what input, for at most how many seconds.

    `needs` holds the outputs of the step's needs; it may be empty for a task that does not want them. `index` is the
    item's, where the step is a map. `in_time` says whether the attempt may still begin: asked while it waits for a
    thread, because its worker's time may end first.
    """

    tenant: str
    run_id: str
    submission: str
    step: str
    attempt: int
    epoch: int
    task: str
    input: Json
    needs: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    timeout_seconds: float
    index: int | None = None
    in_time: Callable[[], bool] = _always


class TaskRunner:
    """Executes tasks, and knows of those that would not stop. Belongs to one event loop at a time.

    `tasks` finds a task by its name.
    """

    def __init__(
        self, settings: Settings, clock: Clock, *, grace_seconds: float = GRACE_SECONDS, tasks: Find = find
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._options = MappingProxyType({"ledger": settings.ledger, "mock_latency_ms": settings.mock_latency_ms})
        self._threads = ThreadSlots(settings.concurrency)
        self.large_inputs = ThreadSlots(settings.concurrency)
        """For attempts whose input is made when they begin: no more of them hold one than could run in threads."""
        self._lingering: dict[asyncio.Task[Any] | threading.Thread, float] = {}
        self._spent = False
        self._told = asyncio.Event()

    @property
    def spent(self) -> bool:
        """Whether a task went on for longer than the grace after it was told to stop. Once true, for ever.

        The process must take no new run, finish or hand over what it has, and end by `os._exit`:
        `asyncio.run` would wait for an `async` task that refuses to be cancelled.
        """
        now = self._clock.monotonic()
        if any(now >= until for until in self._still_going().values()):
            self._spent = True
        return self._spent

    async def until_spent(self) -> None:
        """Returns once the process is spent; wakes for nothing as long as every task stops when it is told to."""
        while not self.spent:
            going = self._still_going()
            if going:
                await self._clock.sleep(max(_GRAIN_SECONDS, min(going.values()) - self._clock.monotonic()))
            else:
                self._told.clear()
                await self._told.wait()

    @property
    def lingering(self) -> int:
        """How many tasks go on although nobody waits for them.

        If there are any at the end of a Lambda invocation, its process must end too: nothing
        outlives the invocation that started it.
        """
        return len(self._still_going())

    def missing(self, tasks: Iterable[str]) -> Mapping[str, Failure]:
        """Those of the tasks that can't be called here, and why."""
        found: dict[str, Failure] = {}
        for name in tasks:
            try:
                self._tasks(name, chaos=self._settings.chaos)
            except NotFound as error:
                found[name] = _missing(error).failure
        return found

    async def run(self, job: Job, *, emit: Callable[[Json], None]) -> Outcome:
        """Executes one attempt to its outcome; `emit` is called on the loop, while the attempt lasts.

        Cancelling the caller cancels the task; then CancelledError comes out after the task has ended or the grace is
        over. So is a timeout's outcome: the next attempt does not begin beside a task that stops when it is told to.
        """
        try:
            definition = self._tasks(job.task, chaos=self._settings.chaos)
        except NotFound as error:
            return _missing(error)
        line = Line(asyncio.get_running_loop())
        ends_at = math.inf

        def emitter(data: Json) -> None:
            line.call(emit, data)

        context = Context(
            run_id=job.run_id,
            step=job.step,
            index=job.index,
            tenant=job.tenant,
            submission=job.submission,
            attempt=job.attempt,
            epoch=job.epoch,
            needs=MappingProxyType(_copy(dict(job.needs))) if definition.wants_needs else MappingProxyType({}),
            options=self._options,
            emitter=emitter,
            time_left=lambda: ends_at - self._clock.monotonic(),
        )
        try:
            async with (
                contextlib.nullcontext(True) if definition.is_async else self._threads.slot(job.in_time) as begun
            ):
                if not begun:
                    return NotBegun()
                ends_at = self._clock.monotonic() + job.timeout_seconds
                async with asyncio.timeout(job.timeout_seconds):
                    if definition.is_async:
                        return await self._on_loop(lambda: _invoke(definition, job, context), context)
                    return await self._in_thread(definition, job, context, line)
        except TimeoutError:
            return failed("timed_out", f"the step took longer than its {job.timeout_seconds:g} s", retryable=True)
        finally:
            context.cancellation.set()
            line.close()

    async def _on_loop(self, call: Callable[[], Coroutine[Any, Any, Json]], context: Context) -> Outcome:
        """Awaits a task in an asyncio task of its own, so that its cancellations and ours are told apart."""
        child = asyncio.create_task(_contained(call, self._settings.max_output_bytes))
        try:
            await asyncio.wait({child})
        except asyncio.CancelledError:
            context.cancellation.set()
            child.cancel()
            self._watch(child)
            # Its `finally` blocks are part of the attempt; one that never ends is not waited for.
            await asyncio.wait({child}, timeout=self._grace_seconds)
            raise
        if child.cancelled():
            return failed("CancelledError", "the task cancelled itself", retryable=True)
        return child.result()

    async def _in_thread(self, definition: TaskDef, job: Job, context: Context, line: Line) -> Outcome:
        """Runs a plain function in a thread; a coroutine that it returns is awaited, as decorators can hide `async`."""
        limit = self._settings.max_output_bytes
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[_Result] = loop.create_future()

        def body() -> None:
            result: _Result
            try:
                value = _invoke(definition, job, context)
                result = value if inspect.iscoroutine(value) else encoded(value, limit)
            except BaseException as error:  # SystemExit is the task's failure, not the end of the worker
                result = raised(error)
            if not line.call(_settle, ended, result):
                _discard(result)

        # In a copy of this context: what the task logs has the run's id, too.
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(body,), name=f"task {job.task}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no more threads
            return failed("no_thread", str(error), retryable=True)
        try:
            result = await asyncio.shield(ended)
        except asyncio.CancelledError:
            context.cancellation.set()
            self._watch(thread)
            # As an `async` task has: a moment to stop in, before anybody tries the step again.
            await asyncio.wait({ended}, timeout=self._grace_seconds)
            if ended.done():
                _discard(ended.result())
            raise
        if isinstance(result, Succeeded | Failed | NotBegun):
            return result
        coroutine = result
        try:
            return await self._on_loop(lambda: coroutine, context)
        finally:
            _discard(coroutine)

    def _watch(self, going: asyncio.Task[Any] | threading.Thread) -> None:
        """Nobody waits any more for what was told to stop."""
        self._lingering[going] = self._clock.monotonic() + self._grace_seconds
        self._told.set()

    def _still_going(self) -> Mapping[asyncio.Task[Any] | threading.Thread, float]:
        self._lingering = {
            going: until
            for going, until in self._lingering.items()
            if (going.is_alive() if isinstance(going, threading.Thread) else not going.done())
        }
        return self._lingering


_Result = Outcome | Coroutine[Any, Any, Json]


def _settle(ended: asyncio.Future[_Result], result: _Result) -> None:
    if ended.done():
        _discard(result)
    else:
        ended.set_result(result)


def _discard(result: _Result) -> None:
    """A coroutine nobody will await is closed, or Python warns of it."""
    if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()


def _invoke(definition: TaskDef, job: Job, context: Context) -> Any:
    """Calls the function with a copy of its input: a task that changes it must not change the record's."""
    given = _copy(job.input)
    return definition.function(given, context) if definition.wants_ctx else definition.function(given)


def _missing(error: NotFound) -> Failed:
    kind = "task_not_loaded" if isinstance(error, NotLoaded) else "unknown_task"
    return failed(kind, str(error), retryable=False)


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


async def _contained(call: Callable[[], Coroutine[Any, Any, Json]], limit: int) -> Outcome:
    try:
        return encoded(await call(), limit)
    except BaseException as error:  # asyncio re-raises SystemExit and KeyboardInterrupt out of the whole loop
        return raised(error)
