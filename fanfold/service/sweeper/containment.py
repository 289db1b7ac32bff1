"""What one bad thing may cost a pass: itself. Nothing is swallowed: errors are kept for the end of the pass."""

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
    """Adds what fails within to `errors`; what follows goes on."""
    try:
        yield
    except Exception as error:
        errors.append(error)


async def remembered(marks: SweeperState, name: str, read: Callable[[Json], T], fresh: T) -> T:
    """What a mark says, as `read` understands it; `fresh` for one that makes no sense: a mark is only a hint.

    Raises an `InfrastructureError` where the mark can't be asked for.
    """
    try:
        return read(await marks.get(name))
    except InfrastructureError:
        raise
    except Exception as error:
        logger().warning("a mark that can't be read is forgotten", extra={"mark": name, "error": repr(error)})
        return fresh
