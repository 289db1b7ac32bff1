"""Repeating a call through faults of the services, by a policy: how long to pause, how long to go on, what is final.

What repeats something else keeps its own loop: a holder's puts, where each try decides anew and a lease ends them
(`fanfold.service.worker.run_commits`), and receivers, which go round for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fanfold.engine.errors import InfrastructureError, NewerSchema, Unreadable
from fanfold.engine.ports import Clock

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a call is repeated after an `InfrastructureError`.

    The last of `pauses_seconds` repeats. No pause begins that would end later than `budget_seconds` after the first
    call. An error that `final` holds of is raised at once.
    """

    pauses_seconds: tuple[float, ...]
    budget_seconds: float = math.inf
    final: Callable[[InfrastructureError], bool] = lambda error: False


def doubling(first_seconds: float, last_seconds: float) -> tuple[float, ...]:
    """Pauses that double, up to the last."""
    pauses = [first_seconds]
    while pauses[-1] < last_seconds:
        pauses.append(min(last_seconds, pauses[-1] * 2))
    return tuple(pauses)


def _damaged(error: InfrastructureError) -> bool:
    """What is damaged stays so, however often it is read; newer code can be deployed again."""
    return isinstance(error, Unreadable) and not isinstance(error, NewerSchema)


UNTIL_CANCELLED = Patience(pauses_seconds=(0.1, 0.3, 1.0, 3.0))
"""For work whose end has to be recorded: until the caller is cancelled, which the end of the lease does."""

WHILE_LEGIBLE = Patience(pauses_seconds=UNTIL_CANCELLED.pauses_seconds, final=_damaged)
"""The same, for what may turn out to be damaged."""

AT_ONCE = Patience(pauses_seconds=(0.0,), final=lambda error: True)
"""One try."""


async def insist(
    clock: Clock, call: Callable[[], Coroutine[Any, Any, Result]], patience: Patience = UNTIL_CANCELLED
) -> Result:
    """What a call answers at last. Raises its last `InfrastructureError` when the policy says that this is the end."""
    until = clock.monotonic() + patience.budget_seconds
    tries = 0
    while True:
        pause = patience.pauses_seconds[min(tries, len(patience.pauses_seconds) - 1)]
        try:
            return await call()
        except InfrastructureError as error:
            if patience.final(error) or clock.monotonic() + pause > until:
                raise
        await clock.sleep(pause)
        tries += 1
