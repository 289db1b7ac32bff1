"""The sealed parts of a run's record: immutable segments, a chain that begins at the newest (R8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from functions.engine.journal import Entry
from functions.engine.run import StepState


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A sealed part of a record: journal entries without a gap, and the checkpoints of settled steps.

    `previous` names the segment before it.
    """

    name: str
    previous: str | None
    entries: tuple[Entry, ...] = ()
    steps: Mapping[str, StepState] = field(default_factory=dict)


def segment_name(submission: str, first_seq: int, write_id: str, part: int) -> str:
    """A name nobody else draws: every put of a head has its own write id (R1), and may need several segments."""
    return f"{submission}#{first_seq:010d}#{write_id}#{part:02d}"
