"""Moving what is finished out of a run's head, so that a step of a long run costs what one of a short run does (R8).

What no unsettled step will read any more, and journal entries that were committed before, go into
an immutable segment. The segment is put first, then the head that names it; a head that is never
committed leaves an orphan segment, which nobody names and which expires.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Json
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run, StepState
from fanfold.engine.record.segments import Segment, segment_name

KEEP_BYTES = 32_000
"""Outputs that unsettled steps still read stay in the head up to this many bytes of JSON: a claim needs no segment."""

SEGMENT_BYTES = 200_000
"""At most so much JSON goes into one segment, unless one part is bigger: an item holds 400 KB, and no part as much."""

MIN_BYTES = 400
"""Less than this (estimated) is not worth a write of its own."""

_ENTRY_BYTES = 12
_STEP_BYTES = 12
# Roughly what an entry without data, and a step without output, take when compressed.

_ENTRY_JSON = 100
_STEP_JSON = 150
# What they take at most as JSON, their step's name aside.


def seal(run: Run, workflow: Workflow, *, committed_seq: int, all_of_it: bool = False) -> tuple[Run, list[Segment]]:
    """The run with what is finished sealed away, and the segments to be put before it.

    `run` is the next record, with its write id; `committed_seq` the last journal entry of the record
    it replaces. No segments: there was too little to seal, and the run is unchanged. With
    `all_of_it` everything that has ended is sealed, however little and whoever still reads it (a
    record near the store's limit).
    """
    steps = {name: state for name, state in run.steps.items() if state.settled}
    if not all_of_it:
        read = {name for name in steps if _is_read(name, run, workflow)}
        if sum(_told_weight(steps[name]) for name in read) <= KEEP_BYTES:
            steps = {name: state for name, state in steps.items() if name not in read}
    last = run.journal[-1].seq if run.journal else 0
    keep_from = last if all_of_it else min(committed_seq + 1, last)
    entries = tuple(entry for entry in run.journal if entry.seq < keep_from)
    weight = sum(map(_entry_weight, entries)) + sum(map(_step_weight, steps.values()))
    if not (entries or steps) or (weight < MIN_BYTES and not all_of_it):
        return run, []
    segments = list(_segments(run, entries, steps))
    marks = {workflow.position(name): state.status for name, state in steps.items()}
    sealed = replace(
        run.sealed,
        newest=segments[-1].name,
        last_seq=entries[-1].seq if entries else run.sealed.last_seq,
        statuses=run.sealed.marked(marks, len(workflow.steps)),
    )
    head = replace(
        run,
        sealed=sealed,
        steps={name: state for name, state in run.steps.items() if name not in steps},
        journal=run.journal[len(entries) :],
    )
    return head, segments


def merged(run: Run, segments: Sequence[Segment]) -> Run:
    """The run as if nothing of it had ever been sealed: whole journal, all steps. Oldest segment first."""
    steps: dict[str, StepState] = {}
    entries: list[Entry] = []
    for segment in segments:
        steps |= segment.steps
        entries += segment.entries
    return replace(run, steps={**steps, **run.steps}, journal=(*entries, *run.journal))


def _is_read(name: str, run: Run, workflow: Workflow) -> bool:
    """Whether somebody may still look at a settled step: an unsettled reader, or the workflow's output."""
    if workflow.output is not None and name in workflow.output.steps:
        return True
    return any(not _settled(reader, run, workflow) for reader in workflow.readers(name))


def _settled(name: str, run: Run, workflow: Workflow) -> bool:
    state = run.steps.get(name)
    return state.settled if state is not None else run.sealed.status(workflow.position(name)) is not None


def _segments(run: Run, entries: tuple[Entry, ...], steps: Mapping[str, StepState]) -> Iterator[Segment]:
    """Cut into segments of bounded size: first the entries, then the checkpoints, as many as fit beside each other."""
    previous, part = run.sealed.newest, 0
    chunk_entries: list[Entry] = []
    chunk_steps: dict[str, StepState] = {}
    weight = 0

    def cut() -> Segment:
        nonlocal previous, part, weight, chunk_entries, chunk_steps
        first_seq = entries[0].seq if entries else run.sealed.last_seq + 1
        segment = Segment(
            name=segment_name(run.submission, first_seq, run.write_id, part),
            previous=previous,
            entries=tuple(chunk_entries),
            steps=chunk_steps,
        )
        previous, part, weight, chunk_entries, chunk_steps = segment.name, part + 1, 0, [], {}
        return segment

    for entry in entries:
        size = _entry_weight(entry) + _ENTRY_JSON + len(entry.step or "")
        if weight and weight + size > SEGMENT_BYTES:
            yield cut()
        chunk_entries.append(entry)
        weight += size
    for name, state in steps.items():
        size = _step_weight(state) + _STEP_JSON + len(name)
        if weight and weight + size > SEGMENT_BYTES:
            yield cut()
        chunk_steps[name] = state
        weight += size
    yield cut()


def _entry_weight(entry: Entry) -> int:
    return _ENTRY_BYTES + _weight(dict(entry.data) if entry.data is not None else None)


def _step_weight(state: StepState) -> int:
    return _STEP_BYTES + _told_weight(state)


def _told_weight(state: StepState) -> int:
    """What a step says of itself: its output, and why it or items of it failed."""
    parts: list[Json] = [] if state.error is None else [[state.error.type, state.error.message]]
    if state.map is not None:
        parts += [[error.index, error.type, error.message] for error in state.map.errors]
    plan = 0 if state.map is None else _weight(state.map.plan)
    return sum(map(_weight, parts)) + plan + _weight(state.output)


def _weight(value: Json) -> int:
    """About how many bytes a value takes as JSON: no fewer than it does."""
    if value is None:
        return 0
    if isinstance(value, BlobRef):
        return 100 + len(value.key)
    return len(json.dumps(value, separators=(",", ":")))
