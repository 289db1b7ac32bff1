"""The part of a run's record that only this code reads: compact JSON, deflated with a preset dictionary.

Lists instead of objects, times as differences, steps named by their position: a finished diamond with its whole
journal stays within one write unit of 1,024 bytes. What a blob means is fixed by the schema number beside it; the
dictionary belongs to the number too and must never change under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fanfold.adapters.packing import deflate, from_ms, inflate, to_ms
from fanfold.adapters.payload_codec import (
    map_from_list,
    map_to_list,
    of_kind,
    origin_from_list,
    origin_to_list,
    value_from_list,
    value_to_list,
)
from fanfold.engine.payload import Json
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import (
    Failure,
    IdempotencyRecord,
    Reason,
    Run,
    Sealed,
    Signal,
    Slot,
    StepState,
    StepStatus,
)

# Positions in these lists are what schema 1 stores: append, never reorder.
_EVENTS: Final = (
    EventType.RUN_ACCEPTED,
    EventType.RUN_CLAIMED,
    EventType.STEP_STARTED,
    EventType.STEP_SUCCEEDED,
    EventType.RUN_SUCCEEDED,
    EventType.STEP_FAILED,
    EventType.STEP_RETRY_SCHEDULED,
    EventType.STEP_INTERRUPTED,
    EventType.STEP_SKIPPED,
    EventType.STEP_CANCELLED,
    EventType.STEP_EMITTED,
    EventType.RUN_SUSPENDED,
    EventType.RUN_PAUSED,
    EventType.RUN_RESUMED,
    EventType.RUN_REDRIVEN,
    EventType.RUN_CANCEL_REQUESTED,
    EventType.RUN_FAILED,
    EventType.RUN_CANCELLED,
    EventType.MAP_STARTED,
    EventType.MAP_FINISHED,
    EventType.SIGNAL_RECEIVED,
)
_STEP_STATUSES: Final = (
    StepStatus.PENDING,
    StepStatus.RUNNING,
    StepStatus.RETRYING,
    StepStatus.SUCCEEDED,
    StepStatus.FAILED,
    StepStatus.SKIPPED,
    StepStatus.CANCELLED,
    StepStatus.WAITING,
)
_EVENT_CODES: Final = {event: code for code, event in enumerate(_EVENTS)}
_STEP_CODES: Final = {status: code for code, status in enumerate(_STEP_STATUSES)}


def encode(run: Run, *, schema: int = 1) -> bytes:
    """The blob of a run: all that its item does not hold in attributes of their own."""
    base = to_ms(run.created_at)
    positions = {name: position for position, name in enumerate(run.steps)}
    return deflate(
        [
            run.workflow,
            run.class_name,
            run.lane,
            value_to_list(run.input),
            dict(run.tags),
            to_ms(run.deadline) - base,
            _offset(run.queue_deadline, base),
            None if run.slot is None else [run.slot.shard, run.slot.hour],
            None if run.reason is None else run.reason.value,
            None if run.error is None else [run.error.type, run.error.message],
            value_to_list(run.output),
            run.try_number,
            _offset(run.due_at, base),
            _offset(run.started_at, base),
            _offset(run.finished_at, base),
            _offset(run.expires_at, base),
            run.crashes,
            {name: step_to_list(step, base) for name, step in run.steps.items()},
            run.journal[0].seq if run.journal else 0,
            journal_to_list(run.journal, base, positions),
            [run.sealed.newest, run.sealed.last_seq, run.sealed.statuses] if run.sealed.newest else None,
            *_rare_to_list(run, base),
        ],
        schema=schema,
    )


def decode(blob: bytes, *, schema: int, created_at: datetime, **native: Any) -> Run:
    """The run of a blob and the fields its item holds itself."""
    base = to_ms(created_at)
    (
        workflow, class_name, lane, given, tags, deadline, queue_deadline, slot, reason, error, output, try_number,
        due_at, started_at, finished_at, expires_at, crashes, steps, first_seq, journal, sealed,
        *rare,
    ) = inflate(blob, schema=schema)  # fmt: skip
    for text in (workflow, class_name, lane):
        of_kind(text, str)
    of_kind(try_number, int)
    of_kind(crashes, int)
    return Run(
        workflow=workflow,
        class_name=class_name,
        lane=lane,
        input=value_from_list(given),
        tags=tags_from(tags),
        created_at=created_at,
        deadline=from_ms(base + deadline),
        queue_deadline=_moment(queue_deadline, base),
        slot=slot_from_list(slot),
        reason=None if reason is None else Reason(reason),
        error=_failure(error),
        output=value_from_list(output),
        try_number=try_number,
        due_at=_moment(due_at, base),
        started_at=_moment(started_at, base),
        finished_at=_moment(finished_at, base),
        expires_at=_moment(expires_at, base),
        crashes=crashes,
        steps={name: step_from_list(step, base) for name, step in steps.items()},
        journal=journal_from_list(journal, first_seq, base, list(steps)),
        sealed=Sealed() if sealed is None else Sealed(newest=sealed[0], last_seq=sealed[1], statuses=sealed[2]),
        **_rare_from_list(rare, base),
        **native,
    )


def _rare_to_list(run: Run, base: int) -> list[Json]:
    """What few runs have, in one object, so that the others don't pay for it."""
    rare: dict[str, Json] = {}
    if run.signals:
        rare["signals"] = [[signal.seq, signal.name, value_to_list(signal.payload)] for signal in run.signals]
    if run.receipts:
        rare["receipts"] = [[receipt.key, receipt.content, receipt.seq] for receipt in run.receipts]
    if run.not_before is not None:
        rare["from"] = _offset(run.not_before, base)
    if run.paused_at is not None:
        rare["paused"] = _offset(run.paused_at, base)
    if run.cancel_requested:
        rare["cancel"] = True
    if run.origin is not None:
        rare["origin"] = origin_to_list(run.origin)
    return [rare] if rare else []


def _rare_from_list(packed: list[Json], base: int) -> dict[str, Any]:
    rare = packed[0] if packed else {}
    return {
        "signals": tuple(
            Signal(seq=seq, name=name, payload=value_from_list(payload))
            for seq, name, payload in rare.get("signals", ())
        ),
        "receipts": tuple(
            IdempotencyRecord(key=key, content=content, seq=seq) for key, content, seq in rare.get("receipts", ())
        ),
        "not_before": _moment(rare.get("from"), base),
        "paused_at": _moment(rare.get("paused"), base),
        "cancel_requested": rare.get("cancel", False),
        "origin": None if "origin" not in rare else origin_from_list(rare["origin"]),
    }


def _offset(moment: datetime | None, base: int) -> int | None:
    return None if moment is None else to_ms(moment) - base


def _moment(offset: int | None, base: int) -> datetime | None:
    return None if offset is None else from_ms(base + offset)


def step_to_list(step: StepState, base: int) -> list[Json]:
    """A step as a list, without the defaults it ends in; times relative to `base` (ms since the epoch)."""
    started = _offset(step.started_at, base)
    finished = _offset(step.finished_at, base)
    if finished is not None:
        finished -= started or 0
    row: list[Json] = [
        _STEP_CODES[step.status],
        step.attempts,
        step.failures,
        step.interruptions,
        started,
        finished,
        value_to_list(step.output),
        _offset(step.due_at, base),
        _step_error(step, base),
        None if step.map is None else map_to_list(step.map),
    ]
    while row and (row[-1] is None or (len(row) <= 4 and row[-1] == 0)):  # defaults, and most steps end in them
        row.pop()
    return row


def step_from_list(row: list[Json], base: int) -> StepState:
    """What `step_to_list` packed."""
    padded = row + [None] * (10 - len(row))
    status, attempts, failures, interruptions, started, finished, output, due_at, error, mapped = padded
    return StepState(
        status=_STEP_STATUSES[status or 0],
        attempts=of_kind(attempts or 0, int),
        failures=of_kind(failures or 0, int),
        interruptions=of_kind(interruptions or 0, int),
        started_at=_moment(started, base),
        finished_at=None if finished is None else from_ms(base + (started or 0) + finished),
        due_at=_moment(due_at, base),
        output=value_from_list(output),
        error=_failure(error),
        map=None if mapped is None else map_from_list(mapped),
        missing_since=from_ms(base + error[2]) if error is not None and len(error) > 2 else None,
    )


def tags_from(packed: Json) -> dict[str, str]:
    """A run's tags as they are. Raises TypeError or ValueError for what is none."""
    for value in of_kind(packed, dict).values():
        of_kind(value, str)
    return packed  # type: ignore[no-any-return]  # which has just been looked at


def slot_from_list(packed: list[Json] | None) -> Slot | None:
    """A slot in the queue from its shard and hour."""
    return None if packed is None else Slot(shard=of_kind(packed[0], int), hour=of_kind(packed[1], int))


def _failure(packed: list[Json] | None) -> Failure | None:
    return None if packed is None else Failure(type=of_kind(packed[0], str), message=of_kind(packed[1], str))


def _step_error(step: StepState, base: int) -> list[Json] | None:
    """Type and message, and since when the step's task is missing where it is: older code reads the first two."""
    if step.error is None:
        return None
    since = _offset(step.missing_since, base)
    return [step.error.type, step.error.message, *([] if since is None else [since])]


def journal_to_list(journal: tuple[Entry, ...], base: int, positions: Mapping[str, int]) -> list[Json]:
    """Entries as lists: times as differences, steps by their position where they have one. ValueError for a gap."""
    rows: list[Json] = []
    before = base
    for seq, entry in enumerate(journal, start=journal[0].seq if journal else 0):
        if entry.seq != seq:
            raise ValueError(f"the journal has {entry.seq} where {seq} must be")
        at = to_ms(entry.at)
        # A step by its position; one that is not among the run's steps by its name.
        step = entry.step if entry.step is None else positions.get(entry.step, entry.step)
        data = None if entry.data is None else dict(entry.data)
        row: list[Json] = [_EVENT_CODES[entry.type], at - before, step, entry.attempt, data, entry.write_id]
        while row[-1] is None:
            row.pop()
        rows.append(row)
        before = at
    return rows


def journal_from_list(rows: list[list[Json]], first_seq: int, base: int, names: list[str]) -> tuple[Entry, ...]:
    """What `journal_to_list` packed."""
    entries: list[Entry] = []
    at = base
    for seq, row in enumerate(rows, start=first_seq):
        code, elapsed, step, attempt, data, write_id = row + [None] * (6 - len(row))
        at += elapsed
        if data is not None:
            of_kind(data, dict)
        entries.append(
            Entry(
                seq=seq,
                at=from_ms(at),
                type=_EVENTS[code],
                step=names[step] if isinstance(step, int) else step,
                attempt=attempt,
                data=data,
                write_id=write_id,
            )
        )
    return tuple(entries)
