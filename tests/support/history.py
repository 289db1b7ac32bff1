"""A past of any length: rows and index are worked out when they are looked at, so a million of them cost nothing."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, overload

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.adapters.memory import MemoryRunStore, ReadMeter, RunCodec
from fanfold.engine.ports import Bucket, RunKey
from fanfold.engine.record.run import Run, Status
from tests.support.builders import a_run, an_id
from tests.support.clock import START

TENANT = "acme"
_BUCKETS: Mapping[str, tuple[int, ...]] = {
    Bucket.FAILED: (0,),
    Bucket.CANCELLED: (1,),
    Bucket.SUCCEEDED: tuple(range(2, 10)),
}
"""Of ten runs in a row, which are in which bucket of the list index."""
_STATUSES = {Bucket.FAILED: Status.FAILED, Bucket.CANCELLED: Status.CANCELLED, Bucket.SUCCEEDED: Status.SUCCEEDED}


def with_history(count: int) -> tuple[MemoryRunStore, ReadMeter]:
    """A store with so many ended runs, the newest a second old, and what meters its reads.

    A tenth failed, a tenth was cancelled; every second run has the tag `parity:0`, the others `parity:1`.
    """
    meter = ReadMeter()
    store = MemoryRunStore(RunCodec(encode=to_item, decode=from_item), meter=meter)
    store._rows = ChainMap({}, _Rows(count))  # type: ignore[assignment,arg-type]  # it only looks things up there
    for bucket, slots in _BUCKETS.items():
        store._listed[TENANT, bucket] = _Index(count, slots)  # type: ignore[assignment]  # the past is only read
    return store, meter


def a_past_run(number: int, count: int) -> Run:
    """Run `number` of `count`, 0 being the oldest."""
    (bucket,) = [bucket for bucket, slots in _BUCKETS.items() if number % 10 in slots]
    at = _at(number, count)
    tags = {"parity": str(number % 2)}
    return a_run(
        number, status=_STATUSES[bucket], created_at=at, finished_at=at, expires_at=at + timedelta(days=365), tags=tags
    )


def _at(number: int, count: int) -> datetime:
    return START - timedelta(seconds=count - number)


class _Rows(Mapping[RunKey, Any]):
    """Each head item by its key."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, key: RunKey) -> Any:
        number = int(key.run_id[1:]) if key.run_id[1:].isdigit() else self._count
        if key.tenant != TENANT or number >= self._count or key.run_id != an_id(number):
            raise KeyError(key)
        return to_item(a_past_run(number, self._count))

    def __iter__(self) -> Iterator[RunKey]:
        return (RunKey(tenant=TENANT, run_id=an_id(number)) for number in range(self._count))

    def __len__(self) -> int:
        return self._count


class _Index(Sequence[tuple[datetime, str]]):
    """One bucket of the list index, oldest first."""

    def __init__(self, count: int, slots: Sequence[int]) -> None:
        self._count = count
        self._slots = slots

    @overload
    def __getitem__(self, at: int) -> tuple[datetime, str]: ...

    @overload
    def __getitem__(self, at: slice) -> list[tuple[datetime, str]]: ...

    def __getitem__(self, at: int | slice) -> tuple[datetime, str] | list[tuple[datetime, str]]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        tens, slot = divmod(at, len(self._slots))
        number = tens * 10 + self._slots[slot]
        return _at(number, self._count), an_id(number)

    def __len__(self) -> int:
        return self._count // 10 * len(self._slots)
