"""Queue slots in memory: bounded counters, in as many shards as the real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from fanfold.engine.admission.estimates import retry_after_seconds, shares
from fanfold.engine.errors import QueueFull, Unavailable
from fanfold.engine.ports import ClassLoad, Reservation
from fanfold.engine.record.run import HOUR_SECONDS, Slot


@dataclass(slots=True, kw_only=True)
class _Shard:
    """One counter: slots taken (in all and by hour), slots returned since ever, its bound (None: none)."""

    limit: int | None
    taken: int = 0
    by_hour: dict[int, int] = field(default_factory=dict)
    drained: int = 0


@dataclass(slots=True, kw_only=True)
class _Class:
    """A class's shards and what the sweeper last sampled (`before`: the time and total of the sample before that)."""

    limit: int
    shards: list[_Shard]
    turn: int = 0
    sampled_at: datetime | None = None
    sampled_drained: int = 0
    before: tuple[datetime, int] | None = None
    drain_per_second: float | None = None
    oldest_accepted_at: datetime | None = None


class MemorySlots:
    """A `QueueSlots` for the classes of `limits` (0: no bound); a class keeps its bound until a `sample` changes it."""

    def __init__(self, limits: Mapping[str, int], shards: int = 1, *, hour_seconds: int = HOUR_SECONDS) -> None:
        self._limits = limits
        self._shards = shards
        self._hour_seconds = hour_seconds
        self._classes: dict[str, _Class] = {}

    def reconfigured(self, limits: Mapping[str, int], shards: int | None = None) -> MemorySlots:
        """The same counters as a process with other settings sees them."""
        other = MemorySlots(limits, self._shards if shards is None else shards, hour_seconds=self._hour_seconds)
        other._classes = self._classes
        return other

    async def reserve(self, class_name: str, *, now: datetime) -> Reservation:
        """See `QueueSlots.reserve`."""
        it = self._class(class_name)
        hour = int(now.timestamp() // self._hour_seconds)
        it.turn += 1
        for step in range(self._shards):
            number = (it.turn + step) % self._shards
            if number >= len(it.shards):
                continue  # nothing is admitted there before a sample has made it
            shard = it.shards[number]
            if shard.limit is None or shard.taken < shard.limit:
                shard.taken += 1
                shard.by_hour[hour] = shard.by_hour.get(hour, 0) + 1
                return Reservation(
                    slot=Slot(shard=number, hour=hour),
                    queued=sum(other.taken for other in it.shards),
                    drain_per_second=_drain_until_now(it, now),
                )
        raise QueueFull(
            class_name,
            limit=it.limit,
            retry_after_seconds=retry_after_seconds(it.limit, it.drain_per_second),
            drain_per_second=_drain_until_now(it, now),
        )

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool] = lambda: True) -> None:
        """See `QueueSlots.give_back`."""
        if not in_time():
            raise Unavailable("a return that would have come too late")
        shard = self._class(class_name).shards[slot.shard]
        if shard.by_hour.get(slot.hour, 0) > 0:
            shard.taken -= 1
            shard.by_hour[slot.hour] -= 1
            shard.drained += 1

    async def load(self, class_name: str) -> ClassLoad:
        """See `QueueSlots.load`."""
        it = self._class(class_name)
        return ClassLoad(
            class_name=class_name,
            depth=sum(shard.taken for shard in it.shards),
            limit=it.limit,
            drain_per_second=it.drain_per_second,
            oldest_accepted_at=it.oldest_accepted_at,
        )

    async def held(self, class_name: str) -> Mapping[Slot, int]:
        """See `QueueSlots.held`."""
        shards = self._class(class_name).shards
        return {
            Slot(shard=number, hour=hour): taken
            for number, shard in enumerate(shards)
            for hour, taken in shard.by_hour.items()
            if taken > 0
        }

    async def write_off(self, class_name: str, slot: Slot, *, surplus: int, standing: int) -> bool:
        """See `QueueSlots.write_off`."""
        shard = self._class(class_name).shards[slot.shard]
        if shard.by_hour.get(slot.hour, 0) != standing:
            return False
        shard.taken -= surplus
        shard.by_hour[slot.hour] -= surplus
        return True

    async def sample(self, class_name: str, *, now: datetime, oldest_accepted_at: datetime | None) -> None:
        """See `QueueSlots.sample`."""
        it = self._class(class_name)
        it.limit = self._limits[class_name]
        it.shards += [_Shard(limit=0) for _ in range(self._shards - len(it.shards))]
        bounds = [*shares(it.limit, self._shards), *[0] * (len(it.shards) - self._shards)]
        # Lowering first, and rising only by what the others leave (see `DynamoSlots.sample`).
        for shard, bound in sorted(zip(it.shards, bounds, strict=True), key=_rise):
            others = sum(max(_room(other.limit), other.taken) for other in it.shards if other is not shard)
            shard.limit = bound and int(min(bound, max(_room(shard.limit), it.limit - others)))
        drained = sum(shard.drained for shard in it.shards)
        if it.sampled_at is not None and now > it.sampled_at:
            it.drain_per_second = (drained - it.sampled_drained) / (now - it.sampled_at).total_seconds()
        it.before = None if it.sampled_at is None else (it.sampled_at, it.sampled_drained)
        it.sampled_at, it.sampled_drained, it.oldest_accepted_at = now, drained, oldest_accepted_at

    def _class(self, class_name: str) -> _Class:
        if class_name not in self._classes:
            limit = self._limits[class_name]
            first = shares(limit, self._shards)[0]
            self._classes[class_name] = _Class(limit=limit, shards=[_Shard(limit=first)])
        return self._classes[class_name]


def _rise(change: tuple[_Shard, int | None]) -> float:
    shard, bound = change
    return 0 if shard.limit == bound else _room(bound) - _room(shard.limit)


def _room(limit: int | None) -> float:
    return inf if limit is None else limit


def _drain_until_now(it: _Class, now: datetime) -> float | None:
    """Places returned per second since the sample before the last, or the last; None before there is one."""
    if it.sampled_at is None:
        return None
    since, drained = it.before or (it.sampled_at, it.sampled_drained)
    seconds = (now - since).total_seconds()
    return (sum(shard.drained for shard in it.shards) - drained) / seconds if seconds > 0 else None
