"""Limits the effect of an error in a pass. No error is swallowed: the pass raises them at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.payload import Json
from fanfold.engine.ports import SweeperState
from fanfold.service.telemetry.reporting import logger

T = TypeVar("T")


@contextmanager
def kept(errors: list[Exception]) -> Iterator[None]:
    """Add an error within the block to `errors`, and continue after the block."""
    try:
        yield
    except Exception as error:
        errors.append(error)


async def remembered(states: SweeperState, name: str, read: Callable[[Json], T], fresh: T) -> T:
    """The stored state of that name, parsed by `read`; `fresh` if it is malformed. The state is only a hint.

    Raises an `InfrastructureError` if the state can't be read.
    """
    try:
        return read(await states.get(name))
    except InfrastructureError:
        raise
    except Exception as error:
        logger().warning(
            "the sweeper's state can't be read and begins anew", extra={"state": name, "error": repr(error)}
        )
        return fresh
