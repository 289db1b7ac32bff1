"""How many messages a worker process has room for: one slot each (R5)."""

from __future__ import annotations

import asyncio


class Slots:
    """A number of slots, `free` of which are nobody's."""

    def __init__(self, number: int) -> None:
        self.free = number
        self._news = asyncio.Event()

    def take(self, most: int) -> int:
        """Take what is free, up to so many; returns how many that are."""
        taken = min(most, self.free)
        self.free -= taken
        return taken

    def give(self, number: int) -> None:
        """Slots that are taken no longer."""
        self.free += number
        self._news.set()

    async def some(self) -> None:
        """Returns when at least one is free."""
        while not self.free:
            self._news.clear()
            await self._news.wait()
