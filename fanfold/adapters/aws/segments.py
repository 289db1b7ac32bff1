"""A sealed segment as an item: sort key `s#{name}`, blob `b`, schema `z`, TTL `x`; nothing else of a run is there.

Segments are never changed. They expire a month after any run could still name them (R15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fanfold.adapters.aws.run_items import PK, SK, TTL, Item, head_key, reads_items
from fanfold.adapters.packing import deflate, inflate, to_ms
from fanfold.adapters.run_codec import journal_from_list, journal_to_list, step_from_list, step_to_list
from fanfold.engine.errors import NewerSchema, NotFound, Unreadable
from fanfold.engine.ports import RunKey
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import SCHEMA, Run
from fanfold.engine.record.segments import Segment, belonging, segment_parts
from fanfold.engine.rules.engine_limits import KEPT_FOR

_AFTER_HASH: Final = "$"
"""The character after '#': ends the range of the sort keys of one submission."""


def segment_range(submission: str) -> tuple[str, str]:
    """The sort keys between which all segments of a submission lie, in the order they were sealed in."""
    return f"s#{submission}#", f"s#{submission}{_AFTER_HASH}"


def segment_key(submission: str, first_seq: int) -> str:
    """The sort key before those of all segments that begin with this entry, and after those of earlier ones."""
    return f"s#{submission}#{first_seq:010d}#"


def page_of(
    run: Run, found: Sequence[Segment | Unreadable], *, after: int, limit: int, all_there: bool
) -> list[Entry] | None:
    """What `RunStore.sealed_entries` answers, from the segments from that on which holds the first of the entries.

    None: more segments are needed to tell; with `all_there` there are none. Raises `NotFound` for a gap, `Unreadable`
    where a segment that can't be read may be what is missing.
    """
    segments = [one for one in found if isinstance(one, Segment)]
    entries = sorted((entry for s in belonging(run, segments) for entry in s.entries), key=lambda entry: entry.seq)
    page = [entry for entry in entries if after < entry.seq <= min(after + limit, run.sealed.last_seq)]
    if len(page) == min(limit, run.sealed.last_seq - after):
        return page
    if all_there:
        for one in found:
            if isinstance(one, Unreadable):
                raise one
        raise NotFound(f"entries of run {run.id} after {after} are not there")
    return None


def to_segment_item(key: RunKey, segment: Segment, *, written_at: datetime) -> Item:
    """A segment's item, below its run."""
    first = segment.entries[0].at if segment.entries else written_at
    base = to_ms(first)
    blob = [
        segment.previous,
        base,
        {name: step_to_list(step, base) for name, step in segment.steps.items()},
        segment.entries[0].seq if segment.entries else 0,
        journal_to_list(segment.entries, base, {name: i for i, name in enumerate(segment.steps)}),
    ]
    return {
        PK: head_key(key.tenant, key.run_id)[PK],
        SK: {"S": f"s#{segment.name}"},
        "z": {"N": str(SCHEMA)},
        "b": {"B": deflate(blob, schema=SCHEMA)},
        TTL: {"N": str(to_ms(written_at + KEPT_FOR) // 1000)},
    }


@reads_items
def from_segment_item(item: Mapping[str, Any]) -> Segment:
    """The segment an item holds. Raises `Unreadable`; `NewerSchema` when a newer version of the code wrote it."""
    schema = int(item["z"]["N"])
    if schema > SCHEMA:
        raise NewerSchema(f"the segment has schema {schema}, this code reads up to {SCHEMA}")
    name = item[SK]["S"].removeprefix("s#")
    segment_parts(name)
    previous, base, steps, first_seq, entries = inflate(item["b"]["B"], schema=schema)
    return Segment(
        name=name,
        previous=previous,
        entries=journal_from_list(entries, first_seq, base, list(steps)),
        steps={name: step_from_list(step, base) for name, step in steps.items()},
    )


def read_segment(item: Mapping[str, Any]) -> Segment | Unreadable:
    """The segment an item holds, or why it can't be read: it may be an orphan that nobody needs."""
    try:
        return from_segment_item(item)
    except Unreadable as error:
        return error


def chain(run: Run, items: Iterable[Item]) -> list[Segment]:
    """The segments that the run's head names, oldest first; others are not looked into. `NotFound` for a gap."""
    by_name = {item[SK]["S"].removeprefix("s#"): item for item in items}
    found: list[Segment] = []
    name = run.sealed.newest
    while name is not None:
        if name not in by_name:
            raise NotFound(f"segment {name} of run {run.id} is not there")
        found.append(from_segment_item(by_name[name]))
        name = found[-1].previous
    return found[::-1]
