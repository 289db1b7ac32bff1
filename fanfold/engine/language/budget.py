"""What evaluating expressions may cost: counted, so that the same evaluation always comes to the same end.

The language is a stranger's way into a worker that other tenants share: `[@, @] | [@, @] | …` doubles its value at each
step, and `reverse(input.text)` copies megabytes in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fanfold.engine.payload import BlobRef, Json

LARGEST_INTEGER = 10**4_300
"""The first integer that Python's JSON neither reads nor writes, by its default limit of 4,300 digits."""

_WORD = 2**64
_BITS_SQUARED = 400
"""Digits of long integers are made in a time that grows with their square: 4,300 of them take as long as a text of
500,000 characters."""

MAX_VALUE_NESTING = 200
"""Deepest value an expression may make or compare; Python's JSON encoder and comparison recurse."""
STEP_NODES = 400_000
"""Most that a step's expressions may visit together, and the output's of a run: nodes of the expressions, parts of
values. About a tenth of a microsecond each."""
STEP_BYTES = 32_000_000
"""Most text, in characters, that they may go through or make together; a place in a list counts as 8. About a
nanosecond each."""
DECISION_NODES = 80_000
DECISION_BYTES = 8_000_000
"""What one decision spends before it leaves the steps that are still to start to the next one, which is due at once.
One step more may be under way by then: together that is a tenth of a second."""
STEP_STARTED = 50
"""Nodes that a step costs beside its expressions when it starts or is skipped."""
DECISION_PAYLOADS = 16_000_000
"""Most bytes of them that the steps of one decision read together, but for one step that needs more."""
STEP_SECONDS = 2.0
DECISION_SECONDS = 0.05
"""Longest a step, and the steps of one decision before the last, may take by the clock that a caller gives, whatever
was counted."""


class PutOff(Exception):
    """Not in this decision: what was to be evaluated is for the next one."""


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

    @property
    def noticeable(self) -> bool:
        """Whether so much is spent that somebody may have been kept waiting: a hundredth."""
        return self.nodes < STEP_NODES * 0.99 or self.bytes < STEP_BYTES * 0.99

    def spend(self, nodes: int, bytes: int = 0) -> None:
        """Pay for what comes next. Raises `Refused` once more is asked than there was."""
        self.nodes -= nodes
        self.bytes -= bytes
        if self.nodes < 0 or self.bytes < 0:
            raise Refused("the expression makes too much of its values")
        if self._clock is not None and self._clock() > self._until:
            raise Refused("the expression takes too long")

    def write(self, value: Json) -> None:
        """Pay for making JSON of a value: each part is looked at before it, and written by it."""
        before = self.nodes
        self.weigh((value,), times=2)
        self.spend((before - self.nodes) // 2)

    def weigh(self, values: Iterable[Json], *, times: int = 1, strict: bool = False) -> None:
        """Pay for all parts of these values, and `times` their text; `strict`: they have to be plain JSON.

        Long integers are paid as if their digits were made, since nearly all there is to do with a value does that.

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
                else:
                    if strict:
                        _check(value)
                    if isinstance(value, int) and not -_WORD < value < _WORD:
                        self.spend(0, value.bit_length() ** 2 // _BITS_SQUARED)
            self.spend(0)
            if not below:
                return
            level = below
        raise Refused(f"a value is nested deeper than {MAX_VALUE_NESTING} levels")


class Allowance:
    """What one decision may spend and read, step by step. No step may read more than `max_read_bytes` of payloads.

    `reading` has the bytes of those that the step has read, by their key.
    """

    def __init__(self, clock: Callable[[], float] | None = None, *, max_read_bytes: int | None = None) -> None:
        self.step = Budget(clock=clock)
        self._clock = clock
        self._until = 0.0 if clock is None else clock() + DECISION_SECONDS
        self._nodes = 0
        self._bytes = 0
        self._max_read_bytes = max_read_bytes
        self._read: dict[str, int] = {}
        self.reading: dict[str, int] = {}
        self._begun = False

    @property
    def payloads(self) -> int:
        """Bytes of payloads that the step has read."""
        return sum(self.reading.values())

    @property
    def taken(self) -> int:
        """Bytes of payloads that the step has read, and text that it has gone through or made."""
        return self.payloads + STEP_BYTES - self.step.bytes

    def next(self) -> Budget:
        """The budget of the step that comes next. Raises `PutOff` once there is nothing left for one."""
        self._nodes += STEP_NODES - self.step.nodes
        self._bytes += STEP_BYTES - self.step.bytes
        self._read |= self.reading
        self.step, self.reading = Budget(clock=self._clock), {}
        late = self._begun and self._clock is not None and self._clock() > self._until
        if late or self._nodes >= DECISION_NODES or self._bytes >= DECISION_BYTES:
            raise PutOff
        self._begun = True
        self._nodes += STEP_STARTED
        return self.step

    def read(self, payloads: Iterable[BlobRef]) -> None:
        """The step reads these payloads. Raises `PutOff` when there is no room for them beside those of other steps.

        Raises `Refused` when they are more than any step may read.
        """
        self.reading |= {ref.key: ref.bytes for ref in payloads}
        mine = self.payloads
        if self._max_read_bytes is not None and mine > self._max_read_bytes:
            raise Refused(f"it reads {mine:,} bytes of payloads; the limit of a step is {self._max_read_bytes:,}")
        if self._read and sum((self._read | self.reading).values()) > DECISION_PAYLOADS:
            self.reading = {}
            raise PutOff


def _check(value: Json) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Refused("the result is not a finite number")
    elif isinstance(value, int):
        if not -LARGEST_INTEGER < value < LARGEST_INTEGER:
            raise Refused("the result is an integer of more than 4,300 digits")
    elif value is not None:
        raise Refused("the result is not a value (is there an `&` too many?)")
