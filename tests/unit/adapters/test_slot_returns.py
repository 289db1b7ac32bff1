"""Slots that a process returns at about the same time share one write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fanfold.adapters.aws.slot_returns import GATHER_SECONDS, SlotReturns
from fanfold.engine.errors import Conflict, Throttled, Unanswered, Unavailable
from fanfold.engine.record.run import Slot
from tests.support.virtual import virtually

SLOT, OTHER = Slot(shard=0, hour=7), Slot(shard=0, hour=8)


class Counter:
    """A counter of slots; `errors` come first, one a write."""

    def __init__(self, *errors: Exception, counted: int = 100) -> None:
        self._errors = list(errors)
        self._counted = counted
        self.writes: list[tuple[Slot, int]] = []

    async def subtract(self, class_name: str, slot: Slot, slots: int, in_time: Callable[[], bool]) -> None:
        if not in_time():
            raise Unavailable("too late")
        self.writes.append((slot, slots))
        if self._errors:
            raise self._errors.pop(0)
        if slots > self._counted:
            raise Conflict(None)
        self._counted -= slots


def always() -> bool:
    return True


@virtually
async def test_a_batch_gives_its_slots_back_in_one_write() -> None:
    counter = Counter()
    returns = SlotReturns(counter.subtract)
    await asyncio.gather(*(returns.add("model", SLOT, always) for _ in range(10)))
    assert counter.writes == [(SLOT, 10)]


@virtually
async def test_what_comes_later_or_is_of_another_hour_has_a_write_of_its_own() -> None:
    counter = Counter()
    returns = SlotReturns(counter.subtract)
    await asyncio.gather(returns.add("model", SLOT, always), returns.add("model", OTHER, always))
    await returns.add("model", SLOT, always)
    assert counter.writes == [(SLOT, 1), (OTHER, 1), (SLOT, 1)]


@virtually
async def test_where_fewer_are_counted_each_is_written_for_itself_and_none_is_missing() -> None:
    counter = Counter(counted=2)
    returns = SlotReturns(counter.subtract)
    await asyncio.gather(*(returns.add("model", SLOT, always) for _ in range(3)))
    assert counter.writes == [(SLOT, 3), (SLOT, 1), (SLOT, 1), (SLOT, 1)]


@pytest.mark.parametrize("error", [Throttled("load"), Unanswered("lost")])
@virtually
async def test_all_that_shared_a_write_are_told_what_became_of_it(error: Exception) -> None:
    counter = Counter(error)
    returns = SlotReturns(counter.subtract)
    told = await asyncio.gather(*(returns.add("model", SLOT, always) for _ in range(3)), return_exceptions=True)
    assert told == [error] * 3
    assert counter.writes == [(SLOT, 3)], "nobody below the caller repeats it"


@virtually
async def test_a_return_whose_time_is_over_is_not_written_and_takes_no_other_along() -> None:
    counter = Counter()
    returns = SlotReturns(counter.subtract)
    late, good = await asyncio.gather(
        returns.add("model", SLOT, lambda: False), returns.add("model", SLOT, always), return_exceptions=True
    )
    assert isinstance(late, Unavailable)
    assert good is None
    assert counter.writes == [(SLOT, 1)]


@virtually
async def test_a_return_whose_caller_is_gone_is_written_all_the_same() -> None:
    counter = Counter()
    returns = SlotReturns(counter.subtract)
    gone = asyncio.create_task(returns.add("model", SLOT, always))
    await asyncio.sleep(GATHER_SECONDS / 2)
    gone.cancel()
    await returns.add("model", SLOT, always)
    assert counter.writes == [(SLOT, 2)]
