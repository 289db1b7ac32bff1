"""What a user installs: a typed client, the command line, the local stack. It never ships to Lambda."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fanfold.client import Client
from fanfold.problems import (
    ApiError,
    Invalid,
    NotFanfold,
    NotFound,
    NotReachable,
    Problem,
    Refused,
    ServiceFailure,
    StateConflict,
    Unauthorized,
)

if TYPE_CHECKING:
    from fanfold.aio import AsyncClient

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Invalid",
    "NotFanfold",
    "NotFound",
    "NotReachable",
    "Problem",
    "Refused",
    "ServiceFailure",
    "StateConflict",
    "Unauthorized",
]


def __getattr__(name: str) -> Any:
    # asyncio is more than half of the import's time, and most programs that import this package have no use for it.
    if name == "AsyncClient":
        from fanfold.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
