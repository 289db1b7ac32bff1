"""A cursor that goes round all active runs, some in each pass: bounded work, however many there are (R14)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from fanfold.engine.payload import Json
from fanfold.engine.ports import Bucket, IndexKey, RunKey, RunStore
from fanfold.engine.record.run import Run, Status
from fanfold.service.run_reads import legible

MAX_READ = 100
"""`RunStore.get_many` takes no more (BatchGetItem's limit)."""

FORMAT = 1
"""The format of a stored cursor. A cursor of another format is dropped, and the scan begins anew."""

MAX_PAGES = 50
"""Index pages a pass asks for at most: a thousand tenants without runs must not make a pass long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The position of the scan: after `key`, or before the first run of `tenant`; None and None: at its start.

    `oldest` is when each class's oldest queued run was accepted, of those seen in this turn;
    `last_oldest`, of those seen in the turn before, which began at `last_began_at`.
    """

    began_at: datetime
    last_began_at: datetime | None = None
    tenant: str | None = None
    key: IndexKey | None = None
    oldest: Mapping[str, datetime] = field(default_factory=dict)
    last_oldest: Mapping[str, datetime] | None = None

    def to_json(self) -> Json:
        """The cursor as JSON."""
        return {
            "format": FORMAT,
            "began_at": self.began_at.isoformat(),
            "last_began_at": None if self.last_began_at is None else self.last_began_at.isoformat(),
            "tenant": self.tenant,
            "key": None if self.key is None else self.key.to_json(),
            "oldest": _texts(self.oldest),
            "last_oldest": None if self.last_oldest is None else _texts(self.last_oldest),
        }

    @classmethod
    def from_json(cls, value: Json, *, now: datetime) -> Cursor:
        """Parse a stored cursor; without one of this format, begin now."""
        if value is None or value.get("format") != FORMAT:
            return cls(began_at=now)
        key = value["key"]
        last, last_oldest = value["last_began_at"], value["last_oldest"]
        return cls(
            began_at=datetime.fromisoformat(value["began_at"]),
            last_began_at=None if last is None else datetime.fromisoformat(last),
            tenant=value["tenant"],
            key=None if key is None else IndexKey.from_json(value["tenant"], key),
            oldest=_times(value["oldest"]),
            last_oldest=None if last_oldest is None else _times(last_oldest),
        )


class ActiveScan:
    """One pass over at most `limit` active runs from a cursor on; `cursor` moves along, `ended` tells a whole turn."""

    def __init__(self, runs: RunStore, tenants: Collection[str], cursor: Cursor, *, limit: int) -> None:
        self._runs = runs
        self._tenants = sorted(tenants)
        self._left = limit
        self.cursor = cursor
        self.ended = False

    async def heads(self, *, now: datetime) -> AsyncIterator[Run]:
        """The records of the pass, oldest first within a tenant, but for those gone or of newer code."""
        pages = 0
        for tenant in self._tenants:
            if self.cursor.tenant is not None and tenant < self.cursor.tenant:
                continue
            if tenant != self.cursor.tenant:
                self.cursor = replace(self.cursor, tenant=tenant, key=None)
            while True:
                if self._left == 0 or pages == MAX_PAGES:
                    return
                pages += 1
                limit = min(self._left, MAX_READ)
                page = await self._runs.page(tenant, Bucket.ACTIVE, limit=limit, before=self.cursor.key, ascending=True)
                if not page:
                    break
                self._left -= len(page)
                keys = [RunKey(tenant=key.tenant, run_id=key.run_id) for key in page]
                found = (await legible(self._runs, keys, now=now)).runs
                for key in keys:
                    if key in found:
                        self._note(found[key])
                        yield found[key]
                self.cursor = replace(self.cursor, key=page[-1])
        self.ended = True
        self.cursor = Cursor(began_at=now, last_began_at=self.cursor.began_at, last_oldest=self.cursor.oldest)

    def _note(self, run: Run) -> None:
        if run.status is Status.QUEUED:
            oldest = min(run.created_at, self.cursor.oldest.get(run.class_name, run.created_at))
            self.cursor = replace(self.cursor, oldest={**self.cursor.oldest, run.class_name: oldest})


def _texts(times: Mapping[str, datetime]) -> Json:
    return {name: at.isoformat() for name, at in times.items()}


def _times(texts: Json) -> Mapping[str, datetime]:
    return {name: datetime.fromisoformat(text) for name, text in texts.items()}
