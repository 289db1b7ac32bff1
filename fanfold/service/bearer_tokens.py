"""Bearer tokens as text: `ff_{id}_{secret}`, of which only the secret's SHA-256 is stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import datetime

from fanfold.engine.admission.lanes import MAX_PRIORITY, UNBOUND, LaneLimit
from fanfold.engine.ports import Token
from fanfold.engine.tenant import checked_tenant

SCOPES = frozenset({"submit", "read", "operate", "admin"})
"""What a token may allow. The one list of them."""

_TEXT = re.compile(r"ff_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


def mint(
    *,
    tenant: str,
    owner: str,
    scopes: frozenset[str],
    now: datetime,
    draw: Callable[[int], bytes],
    expires_at: datetime | None = None,
    bound: LaneLimit = UNBOUND,
) -> tuple[str, Token]:
    """A new token: its text, shown once and never again, and what is stored of it.

    `draw(n)` gives n unpredictable bytes (`secrets.token_bytes`): 8 name the token, 32 are its
    secret; `bound` limits the lanes it may use. Raises ValueError for an unknown scope, none at all, what is no
    tenant's name, or a bound that is none.
    """
    checked_tenant(tenant)
    if not scopes or scopes - SCOPES:
        wrong = ", ".join(sorted(scopes - SCOPES)) or "none"
        raise ValueError(f"a token has scopes of {', '.join(sorted(SCOPES))}; given: {wrong}")
    if bound.max_priority is not None and not 0 <= bound.max_priority <= MAX_PRIORITY:
        raise ValueError(f"a token's highest priority is 0 to {MAX_PRIORITY}; given: {bound.max_priority}")
    if bound.max_lane == "":
        raise ValueError("a token's best lane has a name: it is empty")
    token_id = draw(8).hex()
    secret = base64.urlsafe_b64encode(draw(32)).decode("ascii").rstrip("=")
    stored = Token(
        id=token_id,
        sha256=_digest(secret),
        tenant=tenant,
        scopes=scopes,
        owner=owner,
        created_at=now,
        expires_at=expires_at,
        max_lane=bound.max_lane,
        max_priority=bound.max_priority,
    )
    return f"ff_{token_id}_{secret}", stored


def parse(text: str) -> tuple[str, str] | None:
    """The id and the secret in a token's text; None for anything that is no such text."""
    found = _TEXT.fullmatch(text)
    return (found[1], found[2]) if found else None


def matches(token: Token, secret: str) -> bool:
    """Whether the secret is this token's, in a time that tells nothing about how much of it was right."""
    return hmac.compare_digest(token.sha256, _digest(secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8")).hexdigest()
