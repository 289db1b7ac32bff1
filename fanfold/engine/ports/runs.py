"""Runs' records, and the keys that find them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from fanfold.engine.errors import Unreadable
from fanfold.engine.payload import Json
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run
from fanfold.engine.record.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class IfAbsent:
    """The write creates the row: no row of that id is there, or only an expired one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstClaim:
    """Absent (or expired), or version 1 of this very submission (R2)."""

    submission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IfVersion:
    """The write replaces exactly this version of this submission."""

    version: int
    submission: str


Condition = IfAbsent | FirstClaim | IfVersion


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What can be a run's id. Nothing else is asked for: it might not even be a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """A run's address."""

    tenant: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DueKey:
    """A row of the due index: a run's address, and when somebody must look at it."""

    tenant: str
    run_id: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKey:
    """A row of the list index: enough to find a run and to go on after it.

    `sort` is there for a row whose sort key is damaged: that key as it is. Such a row says nothing of the time.
    """

    tenant: str
    run_id: str
    created_at: datetime
    sort: str | None = None

    @property
    def order(self) -> str:
        """The entry's sort key, by which the index is ordered: the time in ms, and the run's id."""
        if self.sort is not None:
            return self.sort
        return f"{(self.created_at - EPOCH) // timedelta(milliseconds=1):013d}#{self.run_id}"

    def to_json(self) -> Json:
        """The entry as JSON, without its tenant."""
        return [self.run_id, self.created_at.isoformat(), *([] if self.sort is None else [self.sort])]

    @classmethod
    def from_json(cls, tenant: str, slot: Json) -> IndexKey:
        """The reverse of `to_json`."""
        run_id, created_at, *sort = slot
        at = datetime.fromisoformat(created_at)
        return cls(tenant=tenant, run_id=run_id, created_at=at, sort=sort[0] if sort else None)


class Bucket:
    """The four partitions of the list index (a run is in exactly one)."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ALL = (ACTIVE, SUCCEEDED, FAILED, CANCELLED)


class RunStore(Protocol):
    """Runs' records: strongly consistent reads, conditional whole-record writes, two lagging indexes."""

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """Write the whole record; returns its size in bytes as the store counts it.

        Raises `Conflict` with the record that stands (or None), `LimitExceeded` when it is too big for an item.
        """

    async def put_segment(self, key: RunKey, segment: Segment, *, now: datetime) -> None:
        """Store an immutable segment of a run's record, before the head that names it is put."""

    async def segments(self, run: Run) -> Sequence[Segment]:
        """The segments this record names, oldest first, strongly consistent.

        Raises `NotFound` when one is missing: the record is gone or has been replaced meanwhile. Raises `Unreadable`
        where one of them can't be read, whatever else lies there.
        """

    async def sealed_entries(self, run: Run, *, after: int, limit: int) -> Sequence[Entry]:
        """The first `limit` sealed entries of this record with a `seq` over `after`, fewer only where it has no more.

        Strongly consistent. Reads the segments they lie in and at most a few more, however many there are. Raises
        `NotFound` as `segments` does.
        """

    async def get(self, key: RunKey, *, now: datetime) -> Run | None:
        """The record, strongly consistent; None when absent or expired."""

    async def get_many(self, keys: Sequence[RunKey], *, now: datetime) -> Mapping[RunKey, Run | Unreadable]:
        """Up to 100 records, strongly consistent; those absent or expired are missing.

        One that this code can't read is its error: it costs no other.
        """

    async def remove_unreadable(self, key: RunKey) -> bool:
        """Delete a record that this code can't read, its head or what is sealed of it, as long as it stands as it was
        looked at; whether it did.

        What can be read, and what is not there, stays as it is.
        """

    async def page(
        self, tenant: str, bucket: str, *, limit: int, before: IndexKey | None = None, ascending: bool = False
    ) -> Sequence[IndexKey]:
        """Up to `limit` index rows of a bucket, newest first (or oldest first), strictly after `before`. May lag."""

    async def due(self, class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        """A class's waiting runs whose `due_at` is not after `until`, earliest first. May lag."""
