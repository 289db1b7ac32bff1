"""Reserved concurrency of the functions that serve callers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fanfold.cdk.type_checks import check_whole

RESERVABLE: Final = ("api", "authorizer", "watch")
"""The functions that serve callers. Reservations of workers and maps are fields of their class."""


def reserved_of(given: Mapping[str, Any]) -> Mapping[str, int]:
    """Reserved executions by function, from the context key `reserved`.

    None by default: Lambda refuses a reservation that leaves less than 100 of the account's quota to all other
    functions (`PutFunctionConcurrency`), and a new account's quota may be 10. Raises ValueError naming what is wrong.
    """
    if unknown := sorted(set(given) - set(RESERVABLE)):
        raise ValueError(f"reserved: unknown {unknown}; known are {', '.join(RESERVABLE)}")
    for name, executions in given.items():
        check_whole(f"reserved: {name}", executions)
        if executions < 1:
            raise ValueError(f"reserved: {name} is at least 1, not {executions}: with 0 it is never called")
    return MappingProxyType(dict(given))
