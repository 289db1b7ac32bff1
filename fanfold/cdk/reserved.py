"""What functions have of the account's concurrency for themselves, so that no worker and no map takes it from them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fanfold.cdk.type_checks import check_whole

RESERVABLE: Final = ("api", "authorizer", "watch")
"""Whom callers meet. What workers and maps have is said of their class."""


def reserved_of(given: Mapping[str, Any]) -> Mapping[str, int]:
    """Executions by function, as the context key `reserved` says them; nobody has any where it says nothing.

    None by default: Lambda refuses a reservation that leaves less than 100 of the account's quota to all other
    functions (`PutFunctionConcurrency`), and a new account's quota may be 10. Raises ValueError naming what is wrong.
    """
    if unknown := sorted(set(given) - set(RESERVABLE)):
        raise ValueError(f"reserved: unknown {unknown}; known are {', '.join(RESERVABLE)}")
    for name, executions in given.items():
        check_whole(f"reserved: {name}", executions)
        if executions < 1:
            raise ValueError(f"reserved: {name} is at least 1, not {executions}: with none it is never called")
    return MappingProxyType(dict(given))
