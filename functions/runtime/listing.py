"""Runs, newest first: the index finds, the row decides, the cursor is the last index key looked at (R16)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from functions.engine.errors import InvalidCursor
from functions.engine.ports import Bucket, IndexKey, RunKey, RunStore
from functions.engine.run import Run, Status
from functions.runtime import cursors

MAX_EXAMINED = 1_000
"""Index keys looked at for one page: a rare filter gets short pages instead of a slow answer."""
_BATCH = 100  # BatchGetItem takes 100 keys
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BUCKETS = {
    Status.SUCCEEDED: Bucket.SUCCEEDED,
    Status.FAILED: Bucket.FAILED,
    Status.CANCELLED: Bucket.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a listed run must be: one of these, where any are named. `tags`: all of them (value None: any value)."""

    statuses: frozenset[Status] = frozenset()
    workflows: frozenset[str] = frozenset()
    tags: tuple[tuple[str, str | None], ...] = ()

    def match(self, run: Run) -> bool:
        """Whether a row is to be shown."""
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
    """Runs with the cursor after each; `next_cursor` is None only at the end of the list."""

    runs: tuple[tuple[Run, str], ...]
    next_cursor: str | None


async def page(
    store: RunStore, tenant: str, filters: Filters, *, limit: int, cursor: str | None, now: datetime
) -> Page:
    """Up to `limit` runs of a tenant. Raises `InvalidCursor` for a cursor of another tenant, filter, or maker."""
    before = None if cursor is None else _position(cursor, tenant, filters)
    shown: list[tuple[Run, str]] = []
    examined = 0
    while True:
        keys, more = await _keys(store, tenant, filters.buckets(), limit=limit, before=before)
        rows = await _rows(store, keys, now)
        for index, key in enumerate(keys):
            before = key
            examined += 1
            run = rows.get(RunKey(tenant=tenant, run_id=key.run_id))
            if run is not None and filters.match(run):
                shown.append((run, _cursor(key, filters)))
                if len(shown) == limit:
                    more = more or index + 1 < len(keys)
                    break
        if not more or before is None:
            return Page(runs=tuple(shown), next_cursor=None)
        if len(shown) == limit or examined >= MAX_EXAMINED:
            return Page(runs=tuple(shown), next_cursor=_cursor(before, filters))


async def _keys(
    store: RunStore, tenant: str, buckets: Sequence[str], *, limit: int, before: IndexKey | None
) -> tuple[list[IndexKey], bool]:
    """The next index keys over all buckets, newest first, each run once; and whether there are more.

    One bucket after the other, the active one first: a run that ends meanwhile is then seen in the
    bucket it left or in the one it entered, not in neither.
    """
    found: dict[str, IndexKey] = {}
    horizon: tuple[datetime, str] | None = None
    for bucket in buckets:
        keys = await store.page(tenant, bucket, limit=limit, before=before)
        for key in keys:
            found.setdefault(key.run_id, key)
        if len(keys) >= limit:
            # Behind its last key this bucket may hold more; nothing older may be shown before that.
            last = _order(keys[-1])
            horizon = last if horizon is None else max(horizon, last)
    ordered = sorted(found.values(), key=_order, reverse=True)
    if horizon is None:
        return ordered, False
    return [key for key in ordered if _order(key) >= horizon], True


async def _rows(store: RunStore, keys: Sequence[IndexKey], now: datetime) -> dict[RunKey, Run]:
    rows: dict[RunKey, Run] = {}
    for start in range(0, len(keys), _BATCH):
        part = [RunKey(tenant=key.tenant, run_id=key.run_id) for key in keys[start : start + _BATCH]]
        rows.update(await store.get_many(part, now=now))
    return rows


def _order(key: IndexKey) -> tuple[datetime, str]:
    return key.created_at, key.run_id


def _listing(tenant: str, filters: Filters) -> str:
    return f"runs\0{tenant}\0{filters.key()}"


def _cursor(key: IndexKey, filters: Filters) -> str:
    milliseconds = (key.created_at - _EPOCH) // timedelta(milliseconds=1)
    return cursors.encode(f"{milliseconds}.{key.run_id}", _listing(key.tenant, filters))


def _position(cursor: str, tenant: str, filters: Filters) -> IndexKey:
    milliseconds, separator, run_id = cursors.decode(cursor, _listing(tenant, filters)).partition(".")
    try:
        created_at = _EPOCH + timedelta(milliseconds=int(milliseconds))
    except (ValueError, OverflowError) as error:
        raise InvalidCursor("the cursor is broken") from error
    if not separator or not run_id:
        raise InvalidCursor("the cursor is broken")
    return IndexKey(tenant=tenant, run_id=run_id, created_at=created_at)
