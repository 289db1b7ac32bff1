"""Which of the runs in need get a wake in this pass: those that have none, and those whose wake was lost (R14).

A class's `resume` queue says how many wakes it shows, not whose. What was rung for before and
still waits is remembered here; of those, as many as the queue shows have their wake in it, and
under a first-in-first-out queue those are the newest. The others' wakes are lost.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from fanfold.engine.payload import Json
from fanfold.engine.ports import QueueDepth, RunKey

Key = TypeVar("Key", bound=Hashable)

_BYTES = 3
"""Of a fingerprint: 2,000 of them are 8 KB as a mark. One run in some thousands is taken for another: it is then
rung for as if its wake were lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a class's `resume` queue shows: `visible` messages, and room for `allowed` more wakes in this pass."""

    visible: int
    allowed: int

    @classmethod
    def of(cls, depth: QueueDepth, *, most: int) -> Room:
        """The room where a pass sends at most `most`, less what the queue holds.

        What is delayed or in hands may be there for hours (timers of their own, long runs): as long
        as fewer than `most` are visible a twentieth is allowed whatever else the queue holds.
        """
        holds = depth.visible + depth.in_flight + depth.delayed
        unhindered = min(most - depth.visible, most // 20)
        return cls(visible=depth.visible, allowed=max(0, most - holds, unhindered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[Key]):
    """Whom to ring for: those never rung for, and those whose wake was lost; each oldest first."""

    lost: Sequence[Key]
    fresh: Sequence[Key]


class Memory:
    """What was rung for: fingerprints of runs, each with the time it was rung for."""

    def __init__(self, fingerprints: Iterable[int] = ()) -> None:
        self._known = frozenset(fingerprints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and self._known == other._known

    __hash__ = None  # type: ignore[assignment]  # equal by value, and kept in no set

    def knows(self, run: RunKey, at: datetime) -> bool:
        """Whether the run was rung for, for being due (or abandoned) at that time."""
        return _fingerprint(run, at) in self._known

    def to_json(self) -> Json:
        """The memory as a mark."""
        packed = b"".join(known.to_bytes(_BYTES, "big") for known in sorted(self._known))
        return base64.b64encode(packed).decode("ascii")

    @classmethod
    def from_json(cls, value: Json) -> Memory:
        """The memory a mark holds; an empty one without a mark of ours: some wakes are then sent again."""
        try:
            packed = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            return cls()
        return cls(int.from_bytes(packed[at : at + _BYTES], "big") for at in range(0, len(packed), _BYTES))

    @classmethod
    def of(cls, rung: Iterable[tuple[RunKey, datetime]]) -> Memory:
        """The memory of having rung for these."""
        return cls(_fingerprint(run, at) for run, at in rung)


def choose(known: Sequence[Key], fresh: Sequence[Key], room: Room) -> Chosen[Key]:
    """Of runs that were rung for and are in need all the same, and of runs that were not, whom to ring for now.

    Both come oldest first. The oldest known one is always among the lost, so that a queue that
    never shows empty holds nobody up for ever; and neither part takes more than half of the room
    as long as the other has use for it.
    """
    lost = known[: max(1, len(known) - room.visible)]
    half = (room.allowed + 1) // 2
    most = max(half, room.allowed - len(fresh))
    lost = lost[: min(most, room.allowed)]
    return Chosen(lost=lost, fresh=fresh[: room.allowed - len(lost)])


def _fingerprint(run: RunKey, at: datetime) -> int:
    return zlib.crc32(f"{run.tenant} {run.run_id} {at.timestamp():.3f}".encode()) % (1 << 8 * _BYTES)
