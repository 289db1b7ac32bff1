"""Tokens and whose they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fanfold.engine.errors import Unreadable
from fanfold.engine.tenant import checked_tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token as stored: never its secret, only the SHA-256 (hex) of it.

    `max_lane` and `max_priority` (0–9) bound what it may submit; None: any. Raises ValueError for what is no
    tenant's name.
    """

    id: str
    sha256: str
    tenant: str
    scopes: frozenset[str]
    owner: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    max_lane: str | None = None
    max_priority: int | None = None

    def __post_init__(self) -> None:
        checked_tenant(self.tenant)


class Tokens(Protocol):
    """Tokens by id, and the tenants they were made for."""

    async def put(self, token: Token) -> None:
        """Store a new token and remember its tenant. Raises `Conflict` if the id is taken."""

    async def get(self, token_id: str) -> Token | None:
        """One token, in one read."""

    async def list(self) -> Sequence[Token | Unreadable]:
        """All tokens, revoked ones too; in place of one that can't be read, why."""

    async def revoke(self, token_id: str, *, now: datetime) -> Token:
        """Mark it revoked (again: no change). Raises `NotFound`."""

    async def tenants(self) -> Collection[str]:
        """Every tenant that ever had a token; a name that can be none is left out."""
