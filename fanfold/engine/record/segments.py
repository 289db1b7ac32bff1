"""The sealed parts of a run's record: immutable segments, a chain that begins at the newest (R8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run, StepState


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A sealed part of a record: journal entries without a gap, and the checkpoints of settled steps.

    `previous` names the segment before it.
    """

    name: str
    previous: str | None
    entries: tuple[Entry, ...] = ()
    steps: Mapping[str, StepState] = field(default_factory=dict)


def segment_parts(name: str) -> tuple[int, str]:
    """The `first_seq` and the write id in a segment's name."""
    _, first_seq, write_id, _ = name.rsplit("#", 3)
    return int(first_seq), write_id


def belonging(run: Run, segments: Sequence[Segment]) -> list[Segment]:
    """Those in a stretch of a record's segments that are known to be the record's, in the order given.

    A segment is if the head names it, or if one of another put goes on from it: whoever seals goes on from
    what the head named then. Any other is an orphan, or the stretch ends too early to tell.
    """
    named = {run.sealed.newest}
    named |= {s.previous for s in segments if s.previous and segment_parts(s.previous)[1] != segment_parts(s.name)[1]}
    writes = {segment_parts(segment.name)[1] for segment in segments if segment.name in named}
    return [segment for segment in segments if segment_parts(segment.name)[1] in writes]


def segment_name(submission: str, first_seq: int, write_id: str, part: int) -> str:
    """A name nobody else draws: every put of a head has its own write id (R1), and may need several segments."""
    return f"{submission}#{first_seq:010d}#{write_id}#{part:02d}"
