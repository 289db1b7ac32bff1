"""Secrets in memory."""

from __future__ import annotations


class MemorySecrets:
    """A `Secrets` in memory."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}

    async def shared(self, name: str, *, drawn: str) -> str:
        """See `Secrets.shared`."""
        return self._secrets.setdefault(name, drawn)
