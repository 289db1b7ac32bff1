"""Tokens in memory."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from fanfold.engine.errors import Conflict, NotFound, Unreadable
from fanfold.engine.ports import Token


class MemoryTokens:
    """A `Tokens`."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}

    async def put(self, token: Token) -> None:
        """See `Tokens.put`."""
        if token.id in self._tokens:
            raise Conflict(self._tokens[token.id])
        self._tokens[token.id] = token

    async def get(self, token_id: str) -> Token | None:
        """See `Tokens.get`."""
        return self._tokens.get(token_id)

    async def list(self) -> Sequence[Token | Unreadable]:
        """See `Tokens.list`."""
        return builtins.list(self._tokens.values())

    async def revoke(self, token_id: str, *, now: datetime) -> Token:
        """See `Tokens.revoke`."""
        token = self._tokens.get(token_id)
        if token is None:
            raise NotFound(f"there is no token {token_id}")
        if token.revoked_at is None:
            token = self._tokens[token_id] = replace(token, revoked_at=now)
        return token

    async def tenants(self) -> Collection[str]:
        """See `Tokens.tenants`."""
        return frozenset(token.tenant for token in self._tokens.values())
