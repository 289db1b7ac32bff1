"""Queue slots in the table: one conditional counter per class and shard (R6).

A shard's item, `#slots#{class}#{shard}`: `c` slots taken, `m` its own bound (-1: none), `h{hour}` slots taken by
hour of acceptance, `d` slots returned since ever, and what the sweeper sampled: `t0`/`d0` the time in ms and the
total of the sample before the last, `t1`/`d1` those of the last (time 0: there was none); on shard 0 also `k`, how many
shards were made, and `o`, the oldest queued run's acceptance in ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any, Final

from fanfold.adapters.aws.calls import Call, Client
from fanfold.adapters.aws.run_items import PK, SK, Item
from fanfold.adapters.aws.slot_returns import SlotReturns
from fanfold.adapters.packing import from_ms, to_ms
from fanfold.engine.admission.estimates import retry_after_seconds, shares
from fanfold.engine.errors import Conflict, QueueFull
from fanfold.engine.ports import ClassLoad, Clock, Ids, Reservation
from fanfold.engine.record.run import HOUR_SECONDS, Slot

REFUSE_SECONDS: Final = 1.0
"""How long a process that found every shard full refuses without asking."""

KEEP_HOURS: Final = 3
"""Hours that ended longer ago and hold no slot are dropped from the item."""

_UNBOUNDED: Final = -1


def _always() -> bool:
    return True


class DynamoSlots:
    """A `QueueSlots` in the table, for the classes of `limits` (0: no bound), each over `shards` counters.

    `call` carries out the calls (the `Aws` object), never twice. A class keeps the bounds its items carry until
    `sample` writes others. The first shard makes itself; each other admits nothing until `sample` has made it, which
    knows what is taken in all of them: so the number of shards may be changed at any time.
    """

    def __init__(
        self,
        call: Call,
        table: str,
        limits: Mapping[str, int],
        shards: int = 1,
        *,
        clock: Clock,
        ids: Ids,
        hour_seconds: int = HOUR_SECONDS,
    ) -> None:
        self._call = call
        self._table = table
        self._limits = limits
        self._shards = shards
        self._clock = clock
        self._ids = ids
        self._hour_ms = hour_seconds * 1000
        self._full: dict[str, tuple[float, QueueFull]] = {}
        self._returns = SlotReturns(self._subtract)

    async def reserve(self, class_name: str, *, now: datetime) -> Reservation:
        """See `QueueSlots.reserve`. One write where a slot is free in the first shard tried."""
        self._refuse_if_just_full(class_name)
        hour = to_ms(now) // self._hour_ms
        bounds = shares(self._limits[class_name], self._shards)
        first = int(self._ids.random() * self._shards)
        full: list[Item] = []
        for step in range(self._shards):
            shard = (first + step) % self._shards
            bound = bounds[shard]
            if bound == 0:  # a bound smaller than the number of shards leaves some without any slot
                continue
            made = {":m": _UNBOUNDED if bound is None else bound} if shard == 0 else {}
            try:
                answer = await self._update(
                    class_name,
                    shard,
                    ("SET m = if_not_exists(m, :m) " if made else "") + f"ADD c :one, h{hour} :one",
                    condition=("attribute_not_exists(m) OR " if made else "") + "m < :zero OR c < m",
                    values={**made, ":one": 1, ":zero": 0},
                    told=True,
                )
            except Conflict as conflict:
                full.append(conflict.current or {})
            else:
                # One shard speaks for all: runs are spread over them evenly.
                drain = _drain_until_now([answer], to_ms(now))
                return Reservation(
                    slot=Slot(shard=shard, hour=hour),
                    queued=_number(answer, "c") * self._shards,
                    drain_per_second=None if drain is None else drain * self._shards,
                )
        limit = sum(_number(item, "m") for item in full)
        refusal = QueueFull(
            class_name,
            limit=limit,
            retry_after_seconds=retry_after_seconds(limit, _drain_per_second(full)),
            drain_per_second=_drain_until_now(full, to_ms(now)),
        )
        self._full[class_name] = (self._clock.monotonic() + REFUSE_SECONDS, refusal)
        raise refusal

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool] | None = None) -> None:
        """See `QueueSlots.give_back`."""
        await self._returns.add(class_name, slot, in_time or _always)
        self._full.pop(class_name, None)

    async def _subtract(self, class_name: str, slot: Slot, slots: int, in_time: Callable[[], bool]) -> None:
        await self._update(
            class_name,
            slot.shard,
            f"ADD c :less, h{slot.hour} :less, d :more",
            condition=f"c >= :more AND h{slot.hour} >= :more",
            values={":less": -slots, ":more": slots},
            in_time=in_time,
        )

    async def load(self, class_name: str) -> ClassLoad:
        """See `QueueSlots.load`: a strong read of each shard."""
        items = await self._read(class_name)
        bounds = self._bounds(class_name, len(items))
        limits = [_number(item, "m", bound) for item, bound in zip(items, bounds, strict=True)]
        oldest = _number(items[0], "o")
        return ClassLoad(
            class_name=class_name,
            depth=sum(_number(item, "c") for item in items),
            limit=0 if _UNBOUNDED in limits else sum(limits),
            drain_per_second=_drain_per_second(items),
            oldest_accepted_at=from_ms(oldest) if oldest else None,
        )

    async def held(self, class_name: str) -> Mapping[Slot, int]:
        """See `QueueSlots.held`: a strong read of each shard."""
        items = await self._read(class_name)
        return {
            Slot(shard=shard, hour=hour): taken
            for shard, item in enumerate(items)
            for hour, taken in _by_hour(item)
            if taken > 0
        }

    async def write_off(self, class_name: str, slot: Slot, *, surplus: int, standing: int) -> bool:
        """See `QueueSlots.write_off`."""
        hour = f"h{slot.hour}"
        try:
            await self._update(
                class_name,
                slot.shard,
                f"ADD c :less, {hour} :less",
                condition=f"{hour} = :standing AND c >= :surplus",
                values={":less": -surplus, ":standing": standing, ":surplus": surplus},
            )
        except Conflict:
            return False
        return True

    async def sample(self, class_name: str, *, now: datetime, oldest_accepted_at: datetime | None) -> None:
        """See `QueueSlots.sample`: a read and a write per shard, and one more where an hour has run empty.

        A shard's bound rises only by what the others leave of the class's bound: by their bounds, or what is taken
        there where that is more. So the class's bound holds while the number of its shards changes, too.
        """
        items = await self._read(class_name)
        bounds = self._bounds(class_name, len(items))
        shards = {":k": len(items)}

        def rise(shard: int) -> float:
            old, new = _number(items[shard], "m"), bounds[shard]
            return 0 if old == new else _room(new) - _room(old)

        # One after the other, lowering first; what each says then can't be exceeded any more.
        for shard in sorted(range(len(items)), key=rise):
            oldest = oldest_accepted_at if shard == 0 else None
            others = sum(_reach(item) for number, item in enumerate(items) if number != shard)
            bound = bounds[shard]
            if bound > 0:
                free = max(_room(_number(items[shard], "m", 0)), self._limits[class_name] - others)
                bound = int(min(bound, free))
            values = {":zero": 0, ":now": to_ms(now), ":m": bound}
            if oldest is not None:
                values[":o"] = to_ms(oldest)
            told = await self._update(
                class_name,
                shard,
                "SET t0 = if_not_exists(t1, :zero), d0 = if_not_exists(d1, :zero), t1 = :now,"
                " d1 = if_not_exists(d, :zero), c = if_not_exists(c, :zero), m = :m"
                + (", k = :k" if shard == 0 else "")
                + (" REMOVE o" if oldest is None else ", o = :o"),
                values=values | (shards if shard == 0 else {}),
                told=True,
            )
            await self._drop_empty_hours(class_name, shard, items[shard], now)
            items[shard] = told

    def _refuse_if_just_full(self, class_name: str) -> None:
        if class_name not in self._full:
            return
        until, refusal = self._full[class_name]
        if self._clock.monotonic() < until:
            raise QueueFull(
                class_name,
                limit=refusal.limit,
                retry_after_seconds=refusal.retry_after_seconds,
                drain_per_second=refusal.drain_per_second,
            )

    async def _drop_empty_hours(self, class_name: str, shard: int, item: Item, now: datetime) -> None:
        before = to_ms(now) // self._hour_ms - KEEP_HOURS
        empty = [f"h{hour}" for hour, taken in _by_hour(item) if hour < before and taken == 0]
        if not empty:
            return
        try:
            await self._update(
                class_name,
                shard,
                f"REMOVE {', '.join(empty)}",
                condition=" AND ".join(f"{name} = :zero" for name in empty),
                values={":zero": 0},
            )
        except Conflict:
            return  # one of them is in use again: the next sample looks anew

    def _bounds(self, class_name: str, made: int) -> list[int]:
        """What each shard's bound is to be; shards that were made by other settings are to admit nothing."""
        bounds = shares(self._limits[class_name], self._shards)
        return [_UNBOUNDED if bound is None else bound for bound in bounds] + [0] * (made - self._shards)

    async def _read(self, class_name: str) -> list[Item]:
        """The items of all shards, also of those that other settings made; the first one knows how many there are."""
        items = await self._read_shards(class_name, range(self._shards))
        return items + await self._read_shards(class_name, range(self._shards, _number(items[0], "k", self._shards)))

    async def _read_shards(self, class_name: str, shards: Iterable[int]) -> list[Item]:
        answers = await asyncio.gather(
            *(
                self._call(
                    Client.DYNAMODB,
                    "get_item",
                    TableName=self._table,
                    Key=_key(class_name, shard),
                    ConsistentRead=True,
                )
                for shard in shards
            )
        )
        return [answer.get("Item", {}) for answer in answers]

    async def _update(
        self,
        class_name: str,
        shard: int,
        update: str,
        *,
        values: Mapping[str, int],
        condition: str | None = None,
        told: bool = False,
        in_time: Callable[[], bool] | None = None,
    ) -> Item:
        """One write; the item as it is then where it is to be `told`, which costs nothing."""
        more: dict[str, Any] = {"ReturnValues": "ALL_NEW"} if told else {}
        if in_time is not None:
            more["in_time"] = in_time
        if condition is not None:
            more |= {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        answer = await self._call(
            Client.DYNAMODB_ONCE,
            "update_item",
            TableName=self._table,
            Key=_key(class_name, shard),
            UpdateExpression=update,
            ExpressionAttributeValues={name: {"N": str(value)} for name, value in values.items()},
            **more,
        )
        item: Item = answer.get("Attributes", {})
        return item


def _key(class_name: str, shard: int) -> Item:
    return {PK: {"S": f"#slots#{class_name}#{shard}"}, SK: {"S": "0"}}


def _number(item: Item, name: str, default: int = 0) -> int:
    return int(item[name]["N"]) if name in item else default


def _room(bound: int) -> float:
    return inf if bound < 0 else bound


def _reach(item: Item) -> float:
    """The most that can be taken in a shard from now on, as long as its bound stays."""
    return max(_room(_number(item, "m")), _number(item, "c"))


def _by_hour(item: Item) -> list[tuple[int, int]]:
    """The hours an item names, and the slots taken in each."""
    return [(int(name[1:]), _number(item, name)) for name in item if name[0] == "h" and name[1:].isdigit()]


def _drain_until_now(items: Sequence[Item], now_ms: int) -> float | None:
    """Places returned per second since the sample before the last, or the last; None before there is one."""
    rate = 0.0
    for item in items:
        time, total = ("t0", "d0") if _number(item, "t0") else ("t1", "d1")
        since = _number(item, time)
        if since == 0 or now_ms <= since:
            return None
        rate += (_number(item, "d") - _number(item, total)) * 1000 / (now_ms - since)
    return rate


def _drain_per_second(items: Sequence[Item]) -> float | None:
    """Places returned per second between the last two samples, over all shards; None before there are two."""
    rate = 0.0
    for item in items:
        began, ended = _number(item, "t0"), _number(item, "t1")
        if began == 0 or ended <= began:
            return None
        rate += (_number(item, "d1") - _number(item, "d0")) * 1000 / (ended - began)
    return rate if items else None
