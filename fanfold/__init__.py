"""What a user installs: a typed client, the command line, the local stack. It never ships to Lambda."""

from __future__ import annotations

from fanfold.aio import AsyncClient
from fanfold.client import Client
from fanfold.problems import ApiError, Invalid, NotFound, NotReachable, Problem, Refused, StateConflict, Unauthorized

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Invalid",
    "NotFound",
    "NotReachable",
    "Problem",
    "Refused",
    "StateConflict",
    "Unauthorized",
]
