"""Runs' records in memory, with the two indexes kept sorted."""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fanfold.adapters.aws.run_items import (
    LIST_PK,
    LIST_SK,
    MAX_ITEM_BYTES,
    SK,
    Item,
    head_key,
    list_partition,
    list_sort,
    size,
    to_item,
)
from fanfold.adapters.aws.segments import chain, page_of, read_segment, segment_key, segment_range, to_segment_item
from fanfold.adapters.memory.read_meter import ReadMeter
from fanfold.engine.errors import Conflict, LimitExceeded, NotFound, Unreadable
from fanfold.engine.payload import BlobRef, Value, dump
from fanfold.engine.ports import Bucket, Condition, DueKey, FirstClaim, IfAbsent, IfVersion, IndexKey, RunKey
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run, Status
from fanfold.engine.record.segments import Segment, segment_parts
from fanfold.engine.tenant import checked_tenant

MAX_KEYS = 100
"""BatchGetItem takes no more keys in one call."""

_STRETCH = 16
"""Segments looked at first for a page of their entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCodec:
    """How a record is stored: with one, every record makes the round trip it makes in the real table."""

    encode: Callable[[Run], Any]
    decode: Callable[[Any], Run]


class MemoryRunStore:
    """A `RunStore` whose indexes never lag. Without a codec the frozen `Run` itself is kept.

    A `meter` counts what reads would cost in DynamoDB, with one shard of each index.
    """

    def __init__(self, codec: RunCodec | None = None, *, meter: ReadMeter | None = None) -> None:
        self._codec = codec
        self._meter = meter
        self._rows: dict[RunKey, Any] = {}
        self._put: dict[RunKey, tuple[Any, Run]] = {}
        self._segments: dict[RunKey, list[Item]] = {}
        self._listed: dict[tuple[str, str], list[tuple[datetime, str]]] = {}
        self._due: dict[str, list[tuple[datetime, str, str]]] = {}

    @property
    def rows(self) -> Mapping[RunKey, Run]:
        """A snapshot of every record there is, expired ones too: for tests and the simulation to look at."""
        return {key: self._decode(item) for key, item in self._rows.items()}

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """See `RunStore.put`."""
        checked_tenant(run.tenant)
        key = RunKey(tenant=run.tenant, run_id=run.id)
        item, item_bytes = self._encode(run)
        stored = self._rows.get(key)
        old = None if stored is None else self._standing(key, stored)
        current = None if old is None or expired(old, now) else old
        if not holds(condition, current):
            raise Conflict(current and self._decode(stored))
        self._rows[key] = item
        if self._codec is not None:
            self._put[key] = (copy(item), run)
        if old is None or _indexed(old) != _indexed(run):
            if old is not None:
                self._unindex(old)
            self._index(run)
        return item_bytes

    async def put_segment(self, key: RunKey, segment: Segment, *, now: datetime) -> None:
        """See `RunStore.put_segment`."""
        item = to_segment_item(key, segment, written_at=now)
        if (item_bytes := size(item)) > MAX_ITEM_BYTES:
            raise LimitExceeded("dynamodb.item_bytes", f"the segment is {item_bytes} bytes, at most {MAX_ITEM_BYTES}")
        self._segments.setdefault(key, []).append(item)

    async def segments(self, run: Run) -> Sequence[Segment]:
        """See `RunStore.segments`."""
        items = self._segments.get(RunKey(tenant=run.tenant, run_id=run.id), [])
        if self._meter is not None and run.sealed.newest is not None:
            self._meter.query(map(size, items), strong=True)
        return chain(run, items)

    async def sealed_entries(self, run: Run, *, after: int, limit: int) -> Sequence[Entry]:
        """See `RunStore.sealed_entries`."""
        if after >= run.sealed.last_seq:
            return []
        items = sorted(self._segments.get(RunKey(tenant=run.tenant, run_id=run.id), []), key=_sort_key)
        low, high = segment_range(run.submission)
        start = bisect_right(items, segment_key(run.submission, after + 2), key=_sort_key)
        if start and _sort_key(items[start - 1]) >= low:
            first_seq, _ = segment_parts(_sort_key(items[start - 1]))
            low = segment_key(run.submission, first_seq)
        items = items[bisect_left(items, low, key=_sort_key) : bisect_left(items, high, key=_sort_key)]
        stretch = _STRETCH
        while True:
            page = page_of(
                run,
                [read_segment(item) for item in items[:stretch]],
                after=after,
                limit=limit,
                all_there=stretch >= len(items),
            )
            if page is not None:
                return page
            stretch *= 2

    async def get(self, key: RunKey, *, now: datetime) -> Run | None:
        """See `RunStore.get`."""
        if self._meter is not None:
            self._meter.get(self._bytes(key))
        return self._find(key, now)

    def _find(self, key: RunKey, now: datetime) -> Run | None:
        item = self._rows.get(key)
        if item is None:
            return None
        run = self._decode(item)
        return None if expired(run, now) else run

    async def get_many(self, keys: Sequence[RunKey], *, now: datetime) -> Mapping[RunKey, Run | Unreadable]:
        """See `RunStore.get_many`."""
        if len(keys) > MAX_KEYS:
            raise LimitExceeded("dynamodb.batch_get_keys", f"{len(keys)} keys, at most {MAX_KEYS}")
        if self._meter is not None:
            self._meter.batch(self._bytes(key) for key in dict.fromkeys(keys))
        found: dict[RunKey, Run | Unreadable] = {}
        for key in keys:
            try:
                run = self._find(key, now)
            except Unreadable as error:
                found[key] = error
            else:
                if run is not None:
                    found[key] = run
        return found

    async def remove_unreadable(self, key: RunKey) -> bool:
        """See `RunStore.remove_unreadable`."""
        if key not in self._rows:
            return False
        try:
            await self.segments(self._decode(self._rows[key]))
        except (Unreadable, NotFound):
            _, was = self._put.pop(key, (None, self._rows[key]))
            self._unindex(was)
            del self._rows[key]
            return True
        return False

    async def page(
        self, tenant: str, bucket: str, *, limit: int, before: IndexKey | None = None, ascending: bool = False
    ) -> Sequence[IndexKey]:
        """See `RunStore.page`."""
        checked_tenant(tenant)
        rows = self._listed.get((tenant, bucket), [])
        mark = None if before is None else (before.created_at, before.run_id)
        if ascending:
            start = 0 if mark is None else bisect_right(rows, mark)
            chosen = rows[start : start + limit]
        else:
            end = len(rows) if mark is None else bisect_left(rows, mark)
            chosen = rows[max(0, end - limit) : end][::-1]
        if self._meter is not None:
            self._meter.query((_index_bytes(tenant, bucket, *row) for row in chosen), strong=False)
        return [IndexKey(tenant=tenant, run_id=run_id, created_at=created_at) for created_at, run_id in chosen]

    async def due(self, class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        """See `RunStore.due`."""
        first = self._due.get(class_name, [])[:limit]
        return [DueKey(tenant=tenant, run_id=run_id, due_at=at) for at, tenant, run_id in first if at <= until]

    def _encode(self, run: Run) -> tuple[Any, int]:
        """The row, and its size: 0 where there is no codec, for then it is no item."""
        if self._codec is None:
            _check_size(run)
            return run, 0
        item = self._codec.encode(run)
        if (item_bytes := size(item)) > MAX_ITEM_BYTES:
            raise LimitExceeded("dynamodb.item_bytes", f"the record is {item_bytes} bytes, at most {MAX_ITEM_BYTES}")
        return item, item_bytes

    def _standing(self, key: RunKey, stored: Any) -> Run:
        """The run of a row, for a condition: like the table, which reads no item's blob, without decoding what it put.

        A row that somebody has changed since, as a test may, is decoded.
        """
        item, run = self._put.get(key, (None, None))
        return run if run is not None and item == stored else self._decode(stored)

    def _bytes(self, key: RunKey) -> int:
        """The size of a row as an item; 0 where there is none."""
        row = self._rows.get(key)
        return 0 if row is None else size(to_item(row) if isinstance(row, Run) else row)

    def _decode(self, item: Any) -> Run:
        run: Run = item if self._codec is None else self._codec.decode(item)
        return run

    def _index(self, run: Run) -> None:
        insort(self._listed.setdefault((run.tenant, bucket_of(run)), []), (run.created_at, run.id))
        if run.status is Status.WAITING and run.due_at is not None:
            insort(self._due.setdefault(run.class_name, []), (run.due_at, run.tenant, run.id))

    def _unindex(self, run: Run) -> None:
        _remove(self._listed[run.tenant, bucket_of(run)], (run.created_at, run.id))
        if run.status is Status.WAITING and run.due_at is not None:
            _remove(self._due[run.class_name], (run.due_at, run.tenant, run.id))


def _indexed(run: Run) -> tuple[object, ...]:
    """What the rows of the two indexes say of a run."""
    return bucket_of(run), run.created_at, run.due_at if run.status is Status.WAITING else None


def _sort_key(item: Item) -> str:
    key: str = item[SK]["S"]
    return key


def expired(run: Run, now: datetime) -> bool:
    """Whether an ended run's lifetime is over: its row may still be there, and counts as absent."""
    return run.terminal and run.expires_at is not None and run.expires_at < now


def holds(condition: Condition, current: Run | None) -> bool:
    """Whether a put under this condition may replace what stands (None: absent or expired)."""
    match condition:
        case IfAbsent():
            return current is None
        case FirstClaim(submission=submission):
            return current is None or (current.version == 1 and current.submission == submission)
        case IfVersion(version=version, submission=submission):
            return current is not None and (current.version, current.submission) == (version, submission)


def bucket_of(run: Run) -> str:
    """The partition of the list index a run is in: its terminal status, or active."""
    match run.status:
        case Status.SUCCEEDED:
            return Bucket.SUCCEEDED
        case Status.FAILED:
            return Bucket.FAILED
        case Status.CANCELLED:
            return Bucket.CANCELLED
        case _:
            return Bucket.ACTIVE


def _index_bytes(tenant: str, bucket: str, created_at: datetime, run_id: str) -> int:
    """The size of a row of the list index, which has the keys alone."""
    keys = {LIST_PK: {"S": list_partition(tenant, bucket, 0)}, LIST_SK: {"S": list_sort(created_at, run_id)}}
    return size(head_key(tenant, run_id) | keys)


def _remove(rows: list[Any], row: Any) -> None:
    del rows[bisect_left(rows, row)]


def _check_size(run: Run) -> None:
    """Refuses what can't fit into an item however it is written: its payloads, compressed, are too big."""
    payloads = b"".join(dump(value) for value in _payloads(run) if not isinstance(value, BlobRef))
    if len(payloads) > MAX_ITEM_BYTES and len(zlib.compress(payloads)) > MAX_ITEM_BYTES:
        raise LimitExceeded("dynamodb.item_bytes", f"the record is over {MAX_ITEM_BYTES} bytes")


def _payloads(run: Run) -> Iterator[Value]:
    yield run.input
    yield run.output
    for step in run.steps.values():
        yield step.output
    for entry in run.journal:
        if entry.data is not None:
            yield dict(entry.data)
