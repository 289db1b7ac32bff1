"""An event loop whose time is virtual: sleeping costs nothing, and the order of events is always the same.

Workflows are explored on it (`fanfold.explore`), and the tests run on it.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

START: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""What a `VirtualClock` shows when its loop's time is 0."""

PROCESS: Final[ContextVar[str]] = ContextVar("process", default="")
"""Which simulated process a task belongs to; tasks inherit it."""


class Stalled(RuntimeError):
    """Nothing can happen any more, and somebody still waits."""


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a file, moves the loop's time."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        self.loop.turns += 1
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Stalled("every task waits for something that will not happen")
            self.loop.move(timeout)
        return ready


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number: sets of tasks are iterated in an order that does not depend on addresses."""

    def __init__(self, coroutine: Any, *, number: int, **given: Any) -> None:
        self.number = number
        super().__init__(coroutine, **given)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, which starts at 0. What is meant for a thread pool is done at once, on the loop.

    Other threads can't be waited for on it, nor can the network.
    """

    def __init__(self) -> None:
        self.virtual = 0.0
        self.turns = 0
        self.most_turns_at_once: int | None = None
        self._moved_at_turn = 0
        self._of_process: dict[str, set[asyncio.Task[Any]]] = {}
        self._numbers = itertools.count(1)
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # What is due within this of now is run now: above the float's own grain at 10^9 seconds.
        self._clock_resolution = 1e-6
        self.set_task_factory(_filed)

    def time(self) -> float:
        return self.virtual

    def move(self, seconds: float) -> None:
        """Nothing is left to do for so long. Raises `Stalled` after `most_turns_at_once` turns in no time, if set."""
        if seconds > 0:
            self.virtual += seconds
            self._moved_at_turn = self.turns
        elif self.most_turns_at_once is not None and self.turns - self._moved_at_turn > self.most_turns_at_once:
            self._moved_at_turn = self.turns  # what is cancelled now needs turns of its own
            raise Stalled("a task waits without letting time pass: it may sleep for 0 seconds, again and again")

    def jump(self, seconds: float) -> None:
        """Everything stands still for so long, as in a frozen process."""
        self.virtual += seconds

    def tasks_of(self, process: str) -> set[asyncio.Task[Any]]:
        """The tasks of a process that have not ended."""
        return {task for task in self._of_process.get(process, set()) if not task.done()}

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], Result], *args: *Arguments
    ) -> asyncio.Future[Result]:
        """Calls the function here and now, whatever the executor: no time passes while a thread works."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def _filed(loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    task = _Task(coroutine, number=next(loop._numbers), loop=loop, **given)
    # Kept for as long as it goes on: a loop's own references are weak, and a process forgets nothing.
    tasks = loop._of_process.setdefault(PROCESS.get(), set())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class VirtualClock:
    """A `Clock` on the running loop's time."""

    def now(self) -> datetime:
        """Wall time, aware UTC, whole milliseconds."""
        moment = START + timedelta(seconds=asyncio.get_running_loop().time())
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        """Seconds since the loop began."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait, which takes no real time."""
        await asyncio.sleep(seconds)


class SeededIds:
    """An `Ids` that draws the same names and numbers for the same seed."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        """12 bytes as 16 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self._random.randbytes(12)).decode("ascii")

    def random(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs to its end on a fresh virtual loop, as `asyncio.run` would on a real one."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def loop() -> VirtualLoop:
    """The running virtual loop."""
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running
