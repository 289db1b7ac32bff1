"""The sweeper's state in memory."""

from __future__ import annotations

from fanfold.engine.payload import Json, dump, parse


class MemorySweeperState:
    """A `SweeperState` in memory."""

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}

    async def get(self, name: str) -> Json:
        """See `SweeperState.get`."""
        return parse(self._states[name]) if name in self._states else None

    async def put(self, name: str, value: Json) -> None:
        """See `SweeperState.put`."""
        self._states[name] = dump(value)
