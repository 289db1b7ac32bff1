"""The journal: a run's ordered, gap-free events, written in the same put as the state they tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fanfold.engine.payload import Json


class EventType(StrEnum):
    """What a journal entry tells; the names are part of the HTTP API's contract."""

    RUN_ACCEPTED = "run.accepted"
    RUN_CLAIMED = "run.claimed"
    RUN_SUSPENDED = "run.suspended"
    RUN_PAUSED = "run.paused"
    RUN_RESUMED = "run.resumed"
    RUN_REDRIVEN = "run.redriven"
    RUN_CANCEL_REQUESTED = "run.cancel_requested"
    RUN_SUCCEEDED = "run.succeeded"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    STEP_STARTED = "step.started"
    STEP_SUCCEEDED = "step.succeeded"
    STEP_FAILED = "step.failed"
    STEP_RETRY_SCHEDULED = "step.retry_scheduled"
    STEP_INTERRUPTED = "step.interrupted"
    STEP_SKIPPED = "step.skipped"
    STEP_CANCELLED = "step.cancelled"
    STEP_EMITTED = "step.emitted"
    MAP_STARTED = "map.started"
    MAP_FINISHED = "map.finished"
    SIGNAL_RECEIVED = "signal.received"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event of a run: `seq` counts from 1 without gaps; `data` is what it is about.

    `write_id` is that of the put it was first in, where one event must be told from its like: of operators'
    moves. It is no part of what is told.
    """

    seq: int
    at: datetime
    type: EventType
    step: str | None = None
    attempt: int | None = None
    data: Mapping[str, Json] | None = None
    write_id: str | None = None

    @property
    def tells_of_a_crash(self) -> bool:
        """Whether it is an attempt's interruption by its worker's death; a worker that has to stop says so."""
        return self.type is EventType.STEP_INTERRUPTED and not (self.data and self.data.get("counted") is False)


_NO_PROGRESS = frozenset({EventType.STEP_INTERRUPTED, EventType.RUN_SUSPENDED})
"""Entries that a claim can add to the journal although nothing began or ended."""


def began_or_ended(journal: Sequence[Entry]) -> bool:
    """Whether anything began or ended since the last claim that a journal tells of."""
    for entry in reversed(journal):
        if entry.type is EventType.RUN_CLAIMED:
            return False
        if entry.type not in _NO_PROGRESS:
            return True
    return True
