"""A virtual loop on which a process can be frozen, and on which the same seed always takes the same course."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextvars import Context
from typing import Any
from weakref import WeakSet

from tests.support.virtual import PROCESS, Stalled, VirtualLoop


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number: sets of tasks are iterated in an order that does not depend on addresses."""

    def __init__(self, coroutine: Any, *, number: int, **given: Any) -> None:
        self.number = number
        super().__init__(coroutine, **given)

    def __hash__(self) -> int:
        return self.number


class SimulationLoop(VirtualLoop):
    """Virtual time; tasks are filed under the process whose context they run in."""

    def __init__(self) -> None:
        super().__init__()
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        self._filed: dict[str, WeakSet[_Task]] = {}
        self._numbers = itertools.count(1)
        self.set_task_factory(_numbered)

    def _run_once(self) -> None:
        """One turn, as the base loop's, without what only files and debugging need: turns are most of a schedule."""
        self.turns += 1
        ready, scheduled = self._ready, self._scheduled  # type: ignore[has-type]  # the base loop's
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]  # the base loop's
            if not scheduled:
                raise Stalled("every task waits for something that will not happen")
            self.move(max(0.0, scheduled[0]._when - self.virtual))
        until = self.virtual + self._clock_resolution
        while scheduled and scheduled[0]._when < until:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As ever, but what a frozen process would do next is kept until it thaws."""
        if self._frozen:
            parked = self._frozen.get(_process(context))
            if parked is not None:
                handle = asyncio.Handle(callback, args, self, context)
                parked.append(handle)
                return handle
        return super().call_soon(callback, *args, context=context)

    def freeze(self, process: str) -> None:
        """The process stands still from its next await on: its timers do not fire, its calls get no answer."""
        if process in self._frozen:
            return
        parked: list[asyncio.Handle] = []
        timers = []
        for timer in self._scheduled:  # type: ignore[attr-defined]  # the base loop's heap of timers
            if not timer.cancelled() and _process(timer._context) == process:
                timer._scheduled = False
                parked.append(timer)
            else:
                timers.append(timer)
        heapq.heapify(timers)
        self._scheduled = timers
        self._frozen[process] = sorted(parked, key=lambda timer: timer.when())

    def thaw(self, process: str) -> None:
        """The process goes on: what fell due meanwhile happens now, late."""
        for handle in self._frozen.pop(process, []):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle) and handle.when() > self.time():
                handle._scheduled = True  # type: ignore[attr-defined]  # as the base loop marks what is in its heap
                heapq.heappush(self._scheduled, handle)
            else:
                self._ready.append(handle)  # type: ignore[attr-defined]  # the base loop's queue

    def tasks_of(self, process: str) -> set[asyncio.Task[Any]]:
        return {task for task in self._filed.get(process, ()) if not task.done()}


def _process(context: Context | None) -> str:
    return PROCESS.get() if context is None else context.get(PROCESS, "")


def _numbered(loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
    assert isinstance(loop, SimulationLoop)
    task = _Task(coroutine, number=next(loop._numbers), loop=loop, **given)
    loop._filed.setdefault(_process(given.get("context")), WeakSet()).add(task)
    return task
