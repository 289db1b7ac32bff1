"""Tenants' names: what may be one. Keys of records and payloads begin with it."""

from __future__ import annotations

import re
from typing import Final

TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""No name that holds a separator of keys (`#` in the table, `/` in the bucket): the end of a name is never in doubt."""


def checked_tenant(name: str) -> str:
    """The name as it is. Raises ValueError, a sentence, for what is no tenant's name."""
    if not TENANT.fullmatch(name):
        raise ValueError(
            f"{name[:100]!r} is no tenant's name: 1–64 letters, digits, `.`, `_` and `-`, of ASCII, the first of them a"
            " letter or digit"
        )
    return name
