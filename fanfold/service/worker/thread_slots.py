"""How many threads plain functions may have at once, and the wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LOOK_SECONDS = 0.25
"""How often a waiting attempt looks whether it may still begin: the end of its worker's time may be moved nearer."""


class ThreadSlots:
    """At most `limit` threads at once. Belongs to one event loop at a time: each Lambda invocation may have its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @asynccontextmanager
    async def slot(self, in_time: Callable[[], bool]) -> AsyncIterator[bool]:
        """A slot for the length of the block, in the order of asking; False: none was free for as long as `in_time`."""
        slots = self._slots()
        taken = await self._take(slots, in_time)
        try:
            yield taken
        finally:
            if taken:
                slots.release()

    async def _take(self, slots: asyncio.Semaphore, in_time: Callable[[], bool]) -> bool:
        if not slots.locked():
            return await slots.acquire()
        # One request for the whole wait: who asks anew would stand behind everybody else again.
        asking = asyncio.ensure_future(slots.acquire())
        wanted = False
        try:
            while (wanted := in_time()) and not asking.done():
                await asyncio.wait({asking}, timeout=LOOK_SECONDS)
            return wanted
        except asyncio.CancelledError:
            wanted = False
            raise
        finally:
            if not wanted and not asking.cancel():
                slots.release()  # it came at the very moment of giving up

    def _slots(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._of is None or self._of[0] is not loop:
            self._of = (loop, asyncio.Semaphore(self._limit))
        return self._of[1]
