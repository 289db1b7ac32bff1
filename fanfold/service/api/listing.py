"""Lists runs, newest first. The index finds them, the record decides, the cursor is the last index key (R16).

A record that this code can't read is listed as unreadable if there is no filter, because nobody can tell whether it
matches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from fanfold.engine.errors import InvalidCursor
from fanfold.engine.ports import EPOCH, RUN_ID, Bucket, IndexKey, RunKey, RunStore
from fanfold.engine.record.run import Run, Status
from fanfold.service.api import cursors
from fanfold.service.run_reads import legible

MAX_EXAMINED = 1_000
"""The most index keys for one page: a rare filter gets short pages instead of a slow answer."""
_FURTHER = 250
"""Index keys of each bucket in further queries: about 24 KB."""
_BATCH = 100  # BatchGetItem takes 100 keys
_DAMAGED = "~"
"""The prefix of a place whose sort key is damaged; the key follows."""
_MAX_SORT_BYTES = 1_024  # DynamoDB's limit for a sort key
_BUCKETS = {
    Status.SUCCEEDED: Bucket.SUCCEEDED,
    Status.FAILED: Bucket.FAILED,
    Status.CANCELLED: Bucket.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters of a list. Empty: everything. `tags`: all of them must match (value None: any value)."""

    statuses: frozenset[Status] = frozenset()
    workflows: frozenset[str] = frozenset()
    tags: tuple[tuple[str, str | None], ...] = ()

    def match(self, run: Run) -> bool:
        """Whether a record matches."""
        return (
            (not self.statuses or run.status in self.statuses)
            and (not self.workflows or run.workflow in self.workflows)
            and all(name in run.tags and value in (None, run.tags[name]) for name, value in self.tags)
        )

    def buckets(self) -> tuple[str, ...]:
        """The partitions of the index that can hold such runs, the active one first."""
        if not self.statuses:
            return Bucket.ALL
        wanted = {_BUCKETS.get(status, Bucket.ACTIVE) for status in self.statuses}
        return tuple(bucket for bucket in Bucket.ALL if bucket in wanted)

    def key(self) -> str:
        """A text that is equal for equal filters."""
        tags = sorted(f"{name}={value}" if value is not None else name for name, value in self.tags)
        return json.dumps([sorted(self.statuses), sorted(self.workflows), tags])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Runs with the cursor after each; `next_cursor` is None only at the end of the list.

    A run that can't be read is represented by its key in the index.
    """

    runs: tuple[tuple[Run | IndexKey, str], ...]
    next_cursor: str | None


async def page(
    store: RunStore, tenant: str, filters: Filters, *, limit: int, cursor: str | None, now: datetime
) -> Page:
    """Up to `limit` runs of a tenant. Raises `InvalidCursor` for a cursor of another tenant, filter, or maker."""
    before = None if cursor is None else _position(cursor, tenant, filters)
    shown: list[tuple[Run | IndexKey, str]] = []
    examined = 0
    while True:
        # If the first query did not fill the page, matches are rare: then read much at once.
        look = limit if examined == 0 else max(limit, _FURTHER)
        keys, more = await _keys(store, tenant, filters.buckets(), limit=look, before=before)
        start = 0
        while start < len(keys) and len(shown) < limit:
            # First read as many records as are missing, so that without a rare filter no record is read in vain.
            wanted = min(limit - len(shown), _BATCH) if start == 0 else _BATCH
            part = keys[start : start + wanted]
            heads = await legible(store, [RunKey(tenant=tenant, run_id=key.run_id) for key in part], now=now)
            for key in part:
                before = key
                examined += 1
                start += 1
                row = RunKey(tenant=tenant, run_id=key.run_id)
                run = heads.runs.get(row)
                if filters.match(run) if run is not None else row in heads.unreadable and filters == Filters():
                    shown.append((run or key, _cursor(key, filters)))
                    if len(shown) == limit:
                        break
        more = more or start < len(keys)
        if not more or before is None:
            return Page(runs=tuple(shown), next_cursor=None)
        if len(shown) >= limit or examined >= MAX_EXAMINED:
            return Page(runs=tuple(shown), next_cursor=_cursor(before, filters))


async def _keys(
    store: RunStore, tenant: str, buckets: Sequence[str], *, limit: int, before: IndexKey | None
) -> tuple[list[IndexKey], bool]:
    """The next index keys over all buckets, newest first, each run once; and whether there are more.

    The active bucket first, then the others at once: a run that ends meanwhile is then seen in the
    bucket it left or in the one it entered, not in neither.
    """
    found: dict[str, IndexKey] = {}
    stop_before: str | None = None
    first = await store.page(tenant, buckets[0], limit=limit, before=before)
    others = await asyncio.gather(*(store.page(tenant, bucket, limit=limit, before=before) for bucket in buckets[1:]))
    for keys in (first, *others):
        for key in keys:
            found.setdefault(key.run_id, key)
        if len(keys) >= limit:
            # This bucket may have more keys after its last one, and they come before anything older.
            last = keys[-1].order
            stop_before = last if stop_before is None else max(stop_before, last)
    ordered = sorted(found.values(), key=attrgetter("order"), reverse=True)
    if stop_before is None:
        return ordered, False
    return [key for key in ordered if key.order >= stop_before], True


def _listing(tenant: str, filters: Filters) -> str:
    return f"runs\0{tenant}\0{filters.key()}"


def _cursor(key: IndexKey, filters: Filters) -> str:
    if key.sort is not None:
        slot = _DAMAGED + json.dumps(key.sort)
    else:
        slot = f"{(key.created_at - EPOCH) // timedelta(milliseconds=1)}.{key.run_id}"
    return cursors.encode(slot, _listing(key.tenant, filters))


def _position(cursor: str, tenant: str, filters: Filters) -> IndexKey:
    slot = cursors.decode(cursor, _listing(tenant, filters))
    if slot.startswith(_DAMAGED):
        return IndexKey(tenant=tenant, run_id="", created_at=EPOCH, sort=_sort(slot.removeprefix(_DAMAGED)))
    milliseconds, separator, run_id = slot.partition(".")
    try:
        created_at = EPOCH + timedelta(milliseconds=int(milliseconds))
    except (ValueError, OverflowError) as error:
        raise InvalidCursor("the cursor is broken") from error
    if not separator or not RUN_ID.fullmatch(run_id):
        raise InvalidCursor("the cursor is broken")
    return IndexKey(tenant=tenant, run_id=run_id, created_at=created_at)


def _sort(text: str) -> str:
    try:
        sort = json.loads(text)
    except ValueError as error:
        raise InvalidCursor("the cursor is broken") from error
    if not isinstance(sort, str) or not 0 < len(sort.encode("utf-8", "surrogatepass")) <= _MAX_SORT_BYTES:
        raise InvalidCursor("the cursor is broken")
    return sort
