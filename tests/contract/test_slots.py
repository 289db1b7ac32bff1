"""What every slots counter promises."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from fanfold.engine.errors import QueueFull
from fanfold.engine.ports import QueueSlots, Reservation
from fanfold.engine.record.run import Slot
from tests.contract.backends import Backend

NOW = datetime(2026, 3, 1, 12, 59, 30, tzinfo=UTC)
HOUR = int(NOW.timestamp() // 3600)


def after(seconds: float) -> datetime:
    """Later. A process may answer for a second from what it knows to be full: tests step further."""
    return NOW + timedelta(seconds=seconds)


async def refusal(slots: QueueSlots, now: datetime, class_name: str = "model") -> QueueFull:
    """The answer to one reservation too many."""
    with pytest.raises(QueueFull) as full:
        await slots.reserve(class_name, now=now)
    return full.value


async def fill(slots: QueueSlots, count: int, now: datetime = NOW) -> list[Slot]:
    """Take that many places, one after the other."""
    return [(await slots.reserve("model", now=now)).slot for _ in range(count)]


async def of_shards(backend: Backend, limits: Mapping[str, int], shards: int) -> QueueSlots:
    """Counters in several shards after the sweeper's first pass, which makes them."""
    slots = backend.slots(limits, shards=shards)
    for class_name in limits:
        await slots.sample(class_name, now=NOW - timedelta(minutes=5), oldest_accepted_at=None)
    return slots


async def test_a_slot_is_counted_until_it_is_given_back(backend: Backend) -> None:
    slots = backend.slots({"model": 5})
    slot = (await slots.reserve("model", now=NOW)).slot
    assert slot == Slot(shard=0, hour=HOUR)
    assert (await slots.load("model")).depth == 1
    await slots.give_back("model", slot)
    assert (await slots.load("model")).depth == 0


async def test_an_untouched_class_is_empty_and_has_its_configured_bound(backend: Backend) -> None:
    load = await backend.slots({"model": 5}).load("model")
    assert (load.class_name, load.depth, load.limit) == ("model", 0, 5)
    assert (load.drain_per_second, load.oldest_accepted_at) == (None, None)


async def test_a_full_class_refuses_with_its_bound(backend: Backend) -> None:
    slots = backend.slots({"model": 2})
    await fill(slots, 2)
    full = await refusal(slots, NOW)
    assert (full.class_name, full.limit, full.retry_after_seconds) == ("model", 2, 5)
    assert (await slots.load("model")).depth == 2


async def test_a_slot_given_back_can_be_taken_again(backend: Backend) -> None:
    slots = backend.slots({"model": 2})
    first, _ = await fill(slots, 2)
    await refusal(slots, NOW)
    await slots.give_back("model", first)
    await backend.pass_time(1.1)
    await slots.reserve("model", now=after(2))
    await refusal(slots, after(2))


@pytest.mark.parametrize("shards", [1, 3])
async def test_the_bound_is_exact_under_many_at_once(backend: Backend, shards: int) -> None:
    slots = await of_shards(backend, {"model": 20}, shards)
    answers = await asyncio.gather(*(slots.reserve("model", now=NOW) for _ in range(50)), return_exceptions=True)
    taken = [a for a in answers if isinstance(a, Reservation)]
    assert len(taken) == 20
    assert all(isinstance(a, QueueFull) for a in answers if a not in taken)
    assert (await slots.load("model")).depth == 20


async def test_shards_add_up_to_the_bound_and_each_slot_goes_back_to_its_own(backend: Backend) -> None:
    slots = await of_shards(backend, {"model": 7}, 3)
    taken = await fill(slots, 7)
    assert {slot.shard for slot in taken} == {0, 1, 2}
    await refusal(slots, NOW)
    for slot in taken:
        await slots.give_back("model", slot)
    await backend.pass_time(1.1)
    assert (await slots.load("model")).depth == 0
    assert len(await fill(slots, 7, after(2))) == 7


async def test_a_bound_smaller_than_the_shards_is_still_exact(backend: Backend) -> None:
    slots = await of_shards(backend, {"model": 2}, 4)
    await fill(slots, 2)
    await refusal(slots, NOW)


async def test_a_class_without_a_bound_never_refuses(backend: Backend) -> None:
    slots = await of_shards(backend, {"model": 0}, 2)
    await fill(slots, 30)
    load = await slots.load("model")
    assert (load.depth, load.limit) == (30, 0)


async def test_classes_are_counted_apart(backend: Backend) -> None:
    slots = backend.slots({"model": 1, "harness": 1})
    await slots.reserve("model", now=NOW)
    await slots.reserve("harness", now=NOW)
    assert (await refusal(slots, NOW, "harness")).class_name == "harness"
    assert (await slots.load("model")).depth == 1


async def test_giving_back_too_often_never_counts_below_zero(backend: Backend) -> None:
    slots = backend.slots({"model": 2})
    slot = (await slots.reserve("model", now=NOW)).slot
    for _ in range(3):
        await slots.give_back("model", slot)
    assert (await slots.load("model")).depth == 0
    await fill(slots, 2)
    await refusal(slots, NOW)


async def test_slots_that_are_given_back_at_once_are_all_given_back(backend: Backend) -> None:
    slots = backend.slots({"model": 9})
    taken = await fill(slots, 7)
    await asyncio.gather(*(slots.give_back("model", slot) for slot in taken[:5]))
    assert (await slots.load("model")).depth == 2


async def test_more_slots_given_back_at_once_than_are_counted_leave_none_and_never_fewer(backend: Backend) -> None:
    slots = backend.slots({"model": 9})
    taken = await fill(slots, 3)
    await asyncio.gather(*(slots.give_back("model", slot) for slot in (*taken, *taken)))
    assert (await slots.load("model")).depth == 0
    assert await slots.held("model") == {}


async def test_giving_back_to_a_counter_nobody_touched_changes_nothing(backend: Backend) -> None:
    slots = backend.slots({"model": 2})
    await slots.give_back("model", Slot(shard=0, hour=HOUR))
    assert (await slots.load("model")).depth == 0


async def test_a_slot_of_an_earlier_hour_goes_back(backend: Backend) -> None:
    slots = backend.slots({"model": 2})
    early = (await slots.reserve("model", now=NOW)).slot
    late = (await slots.reserve("model", now=after(3600))).slot
    assert late.hour == early.hour + 1
    await slots.give_back("model", early)
    assert (await slots.load("model")).depth == 1


async def test_the_rate_is_what_drained_between_two_samples(backend: Backend) -> None:
    slots = backend.slots({"model": 100}, shards=2)
    taken = await fill(slots, 30)
    await slots.sample("model", now=NOW, oldest_accepted_at=NOW)
    assert (await slots.load("model")).drain_per_second is None
    for slot in taken:
        await slots.give_back("model", slot)
    await slots.sample("model", now=after(60), oldest_accepted_at=after(50))
    load = await slots.load("model")
    assert load.drain_per_second == pytest.approx(0.5)
    assert load.oldest_accepted_at == after(50)
    await slots.sample("model", now=after(120), oldest_accepted_at=None)
    load = await slots.load("model")
    assert load.drain_per_second == pytest.approx(0)
    assert load.oldest_accepted_at is None


async def test_a_refused_caller_is_told_when_a_slot_should_be_free(backend: Backend) -> None:
    slots = backend.slots({"model": 20})
    taken = await fill(slots, 20)
    await slots.sample("model", now=NOW, oldest_accepted_at=None)
    for slot in taken[:15]:
        await slots.give_back("model", slot)
    await slots.sample("model", now=after(60), oldest_accepted_at=None)
    await fill(slots, 15, after(60))
    # A hundredth of the bound, at least one place, at 15 a minute: 4 s.
    assert (await refusal(slots, after(60))).retry_after_seconds == 4


async def test_a_queue_that_stands_still_asks_for_the_longest_wait(backend: Backend) -> None:
    slots = backend.slots({"model": 1})
    await fill(slots, 1)
    await slots.sample("model", now=NOW, oldest_accepted_at=None)
    await slots.sample("model", now=after(60), oldest_accepted_at=None)
    assert (await refusal(slots, after(60))).retry_after_seconds == 60


async def test_a_raised_bound_counts_from_the_next_sample(backend: Backend) -> None:
    old = await of_shards(backend, {"model": 2}, 2)
    await fill(old, 2)
    new = await of_shards(backend, {"model": 5}, 2)
    await new.sample("model", now=NOW, oldest_accepted_at=None)
    assert (await new.load("model")).limit == 5
    await fill(new, 3)
    assert (await refusal(new, NOW)).limit == 5


async def test_a_lowered_bound_admits_nobody_until_enough_have_gone(backend: Backend) -> None:
    old = backend.slots({"model": 4})
    taken = await fill(old, 4)
    new = backend.slots({"model": 2})
    await new.sample("model", now=NOW, oldest_accepted_at=None)
    for slot in taken[:2]:
        await new.give_back("model", slot)
    await refusal(new, NOW)
    await refusal(old, NOW)
    await new.give_back("model", taken[2])
    await backend.pass_time(1.1)
    await new.reserve("model", now=after(2))
    await refusal(new, after(2))


async def test_a_bound_can_be_lifted_and_set_again(backend: Backend) -> None:
    await fill(backend.slots({"model": 1}), 1)
    free = backend.slots({"model": 0})
    await free.sample("model", now=NOW, oldest_accepted_at=None)
    await fill(free, 3)
    bound = backend.slots({"model": 4})
    await bound.sample("model", now=after(60), oldest_accepted_at=None)
    await refusal(bound, after(60))


# --- repair -----------------------------------------------------------------------------------


async def test_what_is_held_is_told_by_shard_and_hour(backend: Backend) -> None:
    slots = await of_shards(backend, {"model": 6}, 2)
    assert await slots.held("model") == {}
    taken = [*await fill(slots, 4), *await fill(slots, 1, after(3600))]
    assert await slots.held("model") == dict(Counter(taken))
    for slot in taken[:4]:
        await slots.give_back("model", slot)
    assert await slots.held("model") == {taken[4]: 1}


async def test_a_reservation_says_how_much_is_queued_and_drains_and_a_refusal_how_much_drains(backend: Backend) -> None:
    slots = backend.slots({"model": 4})
    taken = await fill(slots, 2)
    unsampled = await slots.reserve("model", now=NOW)
    assert (unsampled.queued, unsampled.drain_per_second) == (3, None)
    await slots.sample("model", now=after(10), oldest_accepted_at=None)
    await slots.give_back("model", taken[0])
    told = await slots.reserve("model", now=after(20))
    assert (told.queued, told.drain_per_second) == (3, pytest.approx(0.1))
    await slots.sample("model", now=after(30), oldest_accepted_at=None)
    await slots.give_back("model", taken[1])
    told = await slots.reserve("model", now=after(30))  # two since the sample before the last
    assert told.drain_per_second == pytest.approx(0.1)
    await fill(slots, 1, after(30))
    assert (await refusal(slots, after(50))).drain_per_second == pytest.approx(0.05)


async def test_leaked_slots_are_written_off_and_have_not_drained(backend: Backend) -> None:
    slots = backend.slots({"model": 3})
    slot, *_ = await fill(slots, 3)
    await slots.sample("model", now=NOW, oldest_accepted_at=None)
    assert await slots.write_off("model", slot, surplus=2, standing=3)
    await slots.sample("model", now=after(60), oldest_accepted_at=None)
    load = await slots.load("model")
    assert (load.depth, load.drain_per_second) == (1, 0)
    assert await slots.held("model") == {slot: 1}
    await fill(slots, 2, after(60))
    await refusal(slots, after(60))


async def test_nothing_is_written_off_once_the_count_has_moved(backend: Backend) -> None:
    slots = backend.slots({"model": 3})
    slot, *_ = await fill(slots, 3)
    await slots.give_back("model", slot)
    assert not await slots.write_off("model", slot, surplus=1, standing=3)
    assert not await slots.write_off("model", Slot(shard=0, hour=HOUR - 1), surplus=1, standing=1)
    assert (await slots.load("model")).depth == 2


async def test_the_same_write_off_again_changes_nothing(backend: Backend) -> None:
    slots = backend.slots({"model": 3})
    slot, *_ = await fill(slots, 3)
    assert await slots.write_off("model", slot, surplus=1, standing=3)
    assert not await slots.write_off("model", slot, surplus=1, standing=3)
    assert (await slots.load("model")).depth == 2


async def test_a_slot_returned_after_its_write_off_takes_no_other_hours_slot(backend: Backend) -> None:
    slots = backend.slots({"model": 3})
    early, *_ = await fill(slots, 1)
    await fill(slots, 1, after(3600))
    assert await slots.write_off("model", early, surplus=1, standing=1)
    await slots.give_back("model", early)
    assert (await slots.load("model")).depth == 1


@pytest.mark.parametrize(("before", "after_it"), [(1, 4), (4, 1), (2, 3), (3, 2)])
async def test_while_the_number_of_shards_changes_no_more_are_taken_than_the_bound(
    backend: Backend, before: int, after_it: int
) -> None:
    """Processes of both settings go on beside each other, and so do both sweepers."""
    old = await of_shards(backend, {"model": 20}, before)
    taken = await fill(old, 20)
    new = backend.slots({"model": 20}, shards=after_it)
    clock = 2.0
    for round_ in range(8):
        for slots in (new, old, new):
            await backend.pass_time(1.1)
            for one in (old, new):
                while len(taken) <= 20:
                    try:
                        taken.append((await one.reserve("model", now=after(clock))).slot)
                    except QueueFull:
                        break
            assert len(taken) <= 20
            sampled = slots if round_ < 5 else new
            await sampled.sample("model", now=after(clock), oldest_accepted_at=None)
            clock += 2
        for slot in taken[:7]:
            await new.give_back("model", slot)
        taken = taken[7:]
    await new.sample("model", now=after(clock), oldest_accepted_at=None)
    await backend.pass_time(1.1)
    assert len(taken) + len(await fill(new, 20 - len(taken), after(clock + 2))) == 20
    await refusal(new, after(clock + 2))
    assert (await new.load("model")).depth == 20


async def test_a_shard_that_was_never_made_admits_nothing(backend: Backend) -> None:
    slots = backend.slots({"model": 8}, shards=4)
    assert {slot.shard for slot in await fill(slots, 2)} == {0}
    await refusal(slots, NOW)
    await slots.sample("model", now=NOW, oldest_accepted_at=None)
    await backend.pass_time(1.1)
    assert len(await fill(slots, 6, after(2))) == 6
    await refusal(slots, after(2))
