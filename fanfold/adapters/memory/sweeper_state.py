"""The sweeper's state in memory."""

from __future__ import annotations

from fanfold.engine.payload import Json, dump, parse


class MemorySweeperState:
    """A `Marks` in memory."""

    def __init__(self) -> None:
        self._marks: dict[str, bytes] = {}

    async def get(self, name: str) -> Json:
        """See `Marks.get`."""
        return parse(self._marks[name]) if name in self._marks else None

    async def put(self, name: str, value: Json) -> None:
        """See `Marks.put`."""
        self._marks[name] = dump(value)
