"""A serverless run engine on AWS: the clients of its HTTP API, and what tasks are written with.

Everything here is imported when it is first used: `import fanfold` loads neither boto3 nor pydantic nor httpx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fanfold.client.async_client import AsyncClient
    from fanfold.client.errors import (
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
    from fanfold.client.sync_client import Client
    from fanfold.engine.errors import Fail, Retry
    from fanfold.tasks.context import Context
    from fanfold.tasks.effects import effect
    from fanfold.tasks.registry import task

_HOMES = {
    "AsyncClient": "fanfold.client.async_client",
    "Client": "fanfold.client.sync_client",
    "Context": "fanfold.tasks.context",
    "Fail": "fanfold.engine.errors",
    "Retry": "fanfold.engine.errors",
    "effect": "fanfold.tasks.effects",
    "task": "fanfold.tasks.registry",
    **dict.fromkeys(
        (
            "ApiError",
            "Invalid",
            "NotFanfold",
            "NotFound",
            "NotReachable",
            "Problem",
            "Refused",
            "ServiceFailure",
            "StateConflict",
            "Unauthorized",
        ),
        "fanfold.client.errors",
    ),
}

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Context",
    "Fail",
    "Invalid",
    "NotFanfold",
    "NotFound",
    "NotReachable",
    "Problem",
    "Refused",
    "Retry",
    "ServiceFailure",
    "StateConflict",
    "Unauthorized",
    "effect",
    "task",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
