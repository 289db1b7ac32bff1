"""Which runs get a wake in this pass: those that have none, and those whose wake was lost (R14).

A class's `resume` queue tells how many messages it holds, not for which runs. So the sweeper remembers for which runs
it has sent wakes. If fewer messages are visible than remembered runs still wait, the wakes of the oldest ones are lost.
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
"""Bytes of a fingerprint: 2,000 fingerprints are 8 KB of the sweeper's state. One run in some thousands has the
fingerprint of another, and then counts as a run whose wake was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAllowance:
    """The state of a class's `resume` queue: `visible` messages, and `allowed` more wakes in this pass."""

    visible: int
    allowed: int

    @classmethod
    def of(cls, depth: QueueDepth, *, most: int) -> WakeAllowance:
        """At most `most` wakes, less the messages that the queue holds.

        Delayed messages and messages in flight may stay for hours (timers, long runs). So a twentieth of `most` is
        allowed as long as fewer than `most` messages are visible.
        """
        holds = depth.visible + depth.in_flight + depth.delayed
        unhindered = min(most - depth.visible, most // 20)
        return cls(visible=depth.visible, allowed=max(0, most - holds, unhindered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[Key]):
    """The runs that get a wake: `fresh` ones never had one, `lost` ones get another. Oldest first."""

    lost: Sequence[Key]
    fresh: Sequence[Key]


class SentWakes:
    """The runs for which a wake was sent: fingerprints of the run and of the time at which it was due."""

    def __init__(self, fingerprints: Iterable[int] = ()) -> None:
        self._known = frozenset(fingerprints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SentWakes) and self._known == other._known

    __hash__ = None  # type: ignore[assignment]  # equal by value, and kept in no set

    def knows(self, run: RunKey, at: datetime) -> bool:
        """Whether a wake was sent because the run was due (or abandoned) at that time."""
        return _fingerprint(run, at) in self._known

    def to_json(self) -> Json:
        """The JSON to store."""
        packed = b"".join(known.to_bytes(_BYTES, "big") for known in sorted(self._known))
        return base64.b64encode(packed).decode("ascii")

    @classmethod
    def from_json(cls, value: Json) -> SentWakes:
        """The reverse of `to_json`. Anything else is empty: then some wakes are sent twice."""
        try:
            packed = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            return cls()
        return cls(int.from_bytes(packed[at : at + _BYTES], "big") for at in range(0, len(packed), _BYTES))

    @classmethod
    def of(cls, sent: Iterable[tuple[RunKey, datetime]]) -> SentWakes:
        """From runs, each with the time at which it was due."""
        return cls(_fingerprint(run, at) for run, at in sent)


def choose(known: Sequence[Key], fresh: Sequence[Key], allowance: WakeAllowance) -> Chosen[Key]:
    """Choose among runs that have had a wake and still wait (`known`), and runs that have had none (`fresh`).

    Both are sorted, oldest first. The oldest known run always counts as lost, so that no run waits for ever in
    front of a queue that is never empty. Neither part gets more than half while the other needs the rest.
    """
    lost = known[: max(1, len(known) - allowance.visible)]
    half = (allowance.allowed + 1) // 2
    most = max(half, allowance.allowed - len(fresh))
    lost = lost[: min(most, allowance.allowed)]
    return Chosen(lost=lost, fresh=fresh[: allowance.allowed - len(lost)])


def _fingerprint(run: RunKey, at: datetime) -> int:
    return zlib.crc32(f"{run.tenant} {run.run_id} {at.timestamp():.3f}".encode()) % (1 << 8 * _BYTES)
