"""Going on through faults of the services, for work whose end has to be recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import Clock

PAUSES_SECONDS = (0.1, 0.3, 1.0, 3.0)
"""Pauses between tries; the last one repeats."""

Result = TypeVar("Result")


async def insist(clock: Clock, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """What a call answers at last: an `InfrastructureError` is no answer, until the caller is cancelled."""
    tries = 0
    while True:
        try:
            return await call()
        except InfrastructureError:
            await clock.sleep(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)])
            tries += 1
