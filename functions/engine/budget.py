"""What evaluating expressions may cost: counted, so that the same evaluation always comes to the same end.

The language is a stranger's way into a worker that other tenants share: `[@, @] | [@, @] | …` doubles its value at each
step, and `reverse(input.text)` copies megabytes in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from functions.engine.functions import LARGEST_INTEGER
from functions.engine.values import Json

MAX_VALUE_NESTING = 200
"""Deepest value an expression may make or compare; Python's JSON encoder and comparison recurse."""
STEP_NODES = 400_000
"""Most that a step's expressions may visit together, and the output's of a run: nodes of the expressions, parts of
values. About a tenth of a microsecond each."""
STEP_BYTES = 32_000_000
"""Most text, in characters, that they may go through or make together; a place in a list counts as 8. About a
nanosecond each."""
STEP_SECONDS = 2.0
"""Longest they may take by the clock that a caller gives, whatever was counted."""


class Refused(Exception):
    """The evaluation was stopped, or its result is not JSON."""


class Budget:
    """What may still be done; spent for good. `clock`, in seconds, is the last resort: counts say the same anywhere."""

    __slots__ = ("_clock", "_until", "bytes", "nodes")

    def __init__(
        self, nodes: int = STEP_NODES, bytes: int = STEP_BYTES, *, clock: Callable[[], float] | None = None
    ) -> None:
        self.nodes = nodes
        self.bytes = bytes
        self._clock = clock
        self._until = 0.0 if clock is None else clock() + STEP_SECONDS

    def spend(self, nodes: int, bytes: int = 0) -> None:
        """Pay for what comes next. Raises `Refused` once more is asked than there was."""
        self.nodes -= nodes
        self.bytes -= bytes
        if self.nodes < 0 or self.bytes < 0:
            raise Refused("the expression makes too much of its values")
        if self._clock is not None and self._clock() > self._until:
            raise Refused("the expression takes too long")

    def weigh(self, values: Iterable[Json], *, times: int = 1, strict: bool = False) -> None:
        """Pay for all parts of these values, and `times` their text; `strict`: they have to be plain JSON.

        Raises `Refused`, also for what is nested deeper than `MAX_VALUE_NESTING`.
        """
        level = list(values)
        self.spend(len(level))
        for _ in range(MAX_VALUE_NESTING):
            below: list[Json] = []
            for value in level:
                if isinstance(value, str):
                    self.bytes -= len(value) * times
                elif isinstance(value, dict):
                    self.spend(len(value), sum(map(len, value)) * times)
                    below.extend(value.values())
                elif isinstance(value, list):
                    self.spend(len(value))
                    below.extend(value)
                elif strict:
                    _check(value)
            self.spend(0)
            if not below:
                return
            level = below
        raise Refused(f"a value is nested deeper than {MAX_VALUE_NESTING} levels")


def _check(value: Json) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Refused("the result is not a finite number")
    elif isinstance(value, int):
        if not -LARGEST_INTEGER < value < LARGEST_INTEGER:
            raise Refused("the result is an integer of more than 4,300 digits")
    elif value is not None:
        raise Refused("the result is not a value (is there an `&` too many?)")
