"""A past of any length: ended runs that are worked out when they are looked at, so a million of them take no memory."""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, overload

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.adapters.memory import MemoryRunStore, ReadMeter, RunCodec
from fanfold.engine.ports import Bucket, RunKey
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import Run, Status, StepState, StepStatus

SPACING: Final = timedelta(seconds=1)
"""Between one past run and the next."""

WORKFLOW: Final = "load-past"
VERSION: Final = "sha256:" + hashlib.sha256(WORKFLOW.encode()).hexdigest()

Row = tuple[datetime, str]
"""A row of the list index: when the run was accepted, and its id."""

_SLOTS: Final[Mapping[str, tuple[int, ...]]] = {
    Bucket.FAILED: (0,),
    Bucket.CANCELLED: (1,),
    Bucket.SUCCEEDED: tuple(range(2, 10)),
}
"""Of ten runs in a row, which are in which bucket of the list index."""
_STATUSES: Final[Mapping[str, Status]] = {
    Bucket.FAILED: Status.FAILED,
    Bucket.CANCELLED: Status.CANCELLED,
    Bucket.SUCCEEDED: Status.SUCCEEDED,
}


def past_id(number: int) -> str:
    """The id of a past run, as long as a real one."""
    return f"p{number:021d}"


def past_run(tenant: str, number: int, *, at: datetime) -> Run:
    """A run of one step that was accepted at that time and has ended: a tenth failed, a tenth was cancelled."""
    (bucket,) = [bucket for bucket, slots in _SLOTS.items() if number % 10 in slots]
    ended_at = at + timedelta(milliseconds=250)
    return Run(
        tenant=tenant,
        id=past_id(number),
        submission=f"s{number:015d}",
        workflow=WORKFLOW,
        workflow_version=VERSION,
        class_name="model",
        lane="normal",
        input={"prompt": "once upon a time"},
        tags={"parity": str(number % 2)},
        request_hash=hashlib.sha256(past_id(number).encode()).hexdigest(),
        created_at=at,
        deadline=at + timedelta(days=1),
        status=_STATUSES[bucket],
        output={"text": "long ago"},
        version=3,
        write_id=f"w{number:015d}",
        epoch=1,
        started_at=at,
        finished_at=ended_at,
        expires_at=ended_at + timedelta(days=365),
        steps={
            "only": StepState(
                status=StepStatus.SUCCEEDED, attempts=1, started_at=at, finished_at=ended_at, output={"text": "ago"}
            )
        },
        journal=(
            Entry(seq=1, at=at, type=EventType.RUN_ACCEPTED),
            Entry(seq=2, at=at, type=EventType.RUN_CLAIMED, data={"epoch": 1}),
            Entry(seq=3, at=at, type=EventType.STEP_STARTED, step="only", attempt=1),
            Entry(seq=4, at=ended_at, type=EventType.STEP_SUCCEEDED, step="only", attempt=1),
            Entry(seq=5, at=ended_at, type=EventType.RUN_SUCCEEDED),
        ),
    )


def past_store(tenant: str, count: int, *, until: datetime) -> tuple[MemoryRunStore, ReadMeter]:
    """A store in which a tenant has so many ended runs, the last accepted just before `until`; and what meters it.

    `count` is a multiple of ten. New runs can be put as into any store.
    """
    if count % 10:
        raise ValueError(f"a past has a multiple of ten runs, not {count}")
    meter = ReadMeter()
    store = MemoryRunStore(RunCodec(encode=to_item, decode=from_item), meter=meter)
    past = _Past(tenant, count, until)
    store._rows = ChainMap({}, past)  # type: ignore[assignment,arg-type]  # nothing is ever put into the second map
    for bucket, slots in _SLOTS.items():
        store._listed[tenant, bucket] = _Index(past, slots)  # type: ignore[assignment]  # as good as a list to bisect
    return store, meter


class _Past(Mapping[RunKey, Any]):
    """Each past run's head item by its key."""

    def __init__(self, tenant: str, count: int, until: datetime) -> None:
        self._tenant = tenant
        self._count = count
        self._begin = until - count * SPACING

    def at(self, number: int) -> datetime:
        """When that run was accepted."""
        return self._begin + number * SPACING

    def __getitem__(self, key: RunKey) -> Any:
        digits = key.run_id[1:]
        number = int(digits) if digits.isdecimal() else self._count
        if key.tenant != self._tenant or number >= self._count or key.run_id != past_id(number):
            raise KeyError(key)
        return to_item(past_run(self._tenant, number, at=self.at(number)))

    def __iter__(self) -> Iterator[RunKey]:
        return (RunKey(tenant=self._tenant, run_id=past_id(number)) for number in range(self._count))

    def __len__(self) -> int:
        return self._count


class _Index(MutableSequence[Row]):
    """One bucket of the list index, oldest first: the past, then whatever was put since."""

    def __init__(self, past: _Past, slots: Sequence[int]) -> None:
        self._past = past
        self._slots = slots
        self._old = len(past) // 10 * len(slots)
        self._new: list[Row] = []

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...

    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        if at >= self._old:
            return self._new[at - self._old]
        tens, slot = divmod(at, len(self._slots))
        number = tens * 10 + self._slots[slot]
        return self._past.at(number), past_id(number)

    def __setitem__(self, at: Any, row: Any) -> None:
        raise TypeError("a row of the index is put in and taken out, never changed")

    def __delitem__(self, at: Any) -> None:
        del self._new[self._since(at)]

    def insert(self, at: int, row: Row) -> None:
        """Put a row in where it belongs, after the past."""
        self._new.insert(self._since(at), row)

    def __len__(self) -> int:
        return self._old + len(self._new)

    def _since(self, at: int) -> int:
        if at < self._old:
            raise IndexError("the past can't be changed")
        return at - self._old
