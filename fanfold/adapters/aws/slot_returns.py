"""Slots that a process returns at about the same time share one write: a batch's first claims come together (R6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from fanfold.engine.errors import Conflict, Unavailable
from fanfold.engine.record.run import Slot

GATHER_SECONDS = 0.05
"""How long the first return of a slot waits for others of its shard and hour."""

InTime = Callable[[], bool]
Subtract = Callable[[str, Slot, int, InTime], Awaitable[None]]
"""Subtracts so many of a class's slots by one write; raises `Conflict` where fewer are counted."""


@dataclass(frozen=True, slots=True)
class _Return:
    """One return, its own time-out, and what becomes of it."""

    in_time: InTime
    done: asyncio.Future[None]

    def end(self, error: Exception | None = None) -> None:
        if self.done.done():
            return  # who asked is gone; it is returned all the same
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


@dataclass(slots=True)
class _Gathering:
    """Returns that wait for each other on one event loop."""

    loop: asyncio.AbstractEventLoop
    returns: list[_Return] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class SlotReturns:
    """Gathers returns by class and slot. Each is written at most once, and none of them later than its `in_time`."""

    def __init__(self, subtract: Subtract) -> None:
        self._subtract = subtract
        self._open: dict[tuple[str, Slot], _Gathering] = {}

    async def add(self, class_name: str, slot: Slot, in_time: InTime) -> None:
        """Return one slot, by a write that others share. Raises what the write raises."""
        loop = asyncio.get_running_loop()
        one = _Return(in_time, loop.create_future())
        key = (class_name, slot)
        gathering = self._open.get(key)
        if gathering is None or gathering.loop is not loop:
            gathering = self._open[key] = _Gathering(loop)
            gathering.task = loop.create_task(self._written(key, gathering))
        gathering.returns.append(one)
        await one.done

    async def _written(self, key: tuple[str, Slot], gathering: _Gathering) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        if self._open.get(key) is gathering:
            del self._open[key]
        wanted: list[_Return] = []
        for one in gathering.returns:
            if one.in_time():
                wanted.append(one)
            else:
                one.end(Unavailable("a return that would have come too late"))
        try:
            await self._together(key, wanted)
        finally:
            for one in wanted:  # the task was cancelled: the loop ends
                one.done.cancel()

    async def _together(self, key: tuple[str, Slot], wanted: Sequence[_Return]) -> None:
        if not wanted:
            return
        try:
            await self._subtract(*key, len(wanted), lambda: all(one.in_time() for one in wanted))
        except Conflict:
            # The sweeper took some for leaked and subtracted them already. Nothing was done: each for itself.
            for one in wanted if len(wanted) > 1 else ():
                await self._together(key, (one,))
            error: Exception | None = None
        except Exception as failed:  # also a bug: who waits for the write is told
            error = failed
        else:
            error = None
        for one in wanted:
            one.end(error)
