"""An event loop whose time is virtual: sleeping costs nothing, and the order of events is always the same."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tests.support.clock import START

Result = TypeVar("Result")

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""Which process of a test's world a task belongs to; tasks inherit it."""


class Stalled(RuntimeError):
    """Nothing can happen any more, and somebody still waits."""


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]  # which class it is depends on the system
    """Instead of waiting for a file, moves the loop's time."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        self.loop.turns += 1
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Stalled("every task waits for something that will not happen")
            self.loop.virtual += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, which starts at 0. Threads can't be waited for on it."""

    def __init__(self) -> None:
        self.virtual = 0.0
        self.turns = 0
        self._of_process: dict[str, set[asyncio.Task[Any]]] = {}
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # What is due within this of now is run now: above the float's own grain at 10^9 seconds.
        self._clock_resolution = 1e-6
        self.set_task_factory(_filed)

    def time(self) -> float:
        return self.virtual

    def jump(self, seconds: float) -> None:
        """Everything stands still for so long, as in a frozen process."""
        self.virtual += seconds

    def tasks_of(self, process: str) -> set[asyncio.Task[Any]]:
        """The tasks of a process that have not ended."""
        return {task for task in self._of_process.get(process, set()) if not task.done()}


def _filed(loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **given)
    # Kept for as long as it goes on: a loop's own references are weak, and a process forgets nothing.
    tasks = loop._of_process.setdefault(PROCESS.get(), set())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class VirtualClock:
    """A `Clock` on the running loop's time."""

    def now(self) -> datetime:
        moment = START + timedelta(seconds=asyncio.get_running_loop().time())
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs to its end on a fresh virtual loop, as `asyncio.run` would on a real one."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes an `async` test one that runs on virtual time."""

    @functools.wraps(test)
    def on_virtual_time(*args: Any, **given: Any) -> None:
        run(test(*args, **given))

    return on_virtual_time


def loop() -> VirtualLoop:
    """The running virtual loop."""
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running
