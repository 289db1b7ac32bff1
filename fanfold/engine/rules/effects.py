"""What is to be done after a commit. Each is derivable again from the record, or harmless to lose (R17)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fanfold.engine.payload import Json
from fanfold.engine.record.run import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Begin this attempt with this input. Lost: whoever holds the run starts what the record calls running.

    `large`: the input is made again when the attempt begins, because many such may have to wait until then.
    """

    step: str
    attempt: int
    input: Json
    large: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SendWake:
    """Send the run's wake, so that it arrives at `at`. Lost: the sweeper rings (R4)."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSlot:
    """Give the queue slot back. Lost: the sweeper heals the counter (R6)."""

    class_name: str
    slot: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMap:
    """Have the items of this map step worked on elsewhere. Lost: the next look at the open map starts it (R9)."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMap:
    """End this map's execution elsewhere. Lost: its batches find the run ended and do nothing (R9)."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEnvelope:
    """Send the run's envelope to its lane again, to arrive when it may begin. Lost: the sweeper sends it (R14)."""


Effect = StartAttempt | SendWake | ReleaseSlot | StartMap | StopMap | SendEnvelope
