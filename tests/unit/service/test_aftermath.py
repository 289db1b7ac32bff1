"""What follows a commit is given up with the one who waits for it, whenever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fanfold.engine.errors import Unavailable
from fanfold.engine.ports import Moment
from fanfold.engine.record.run import Slot
from fanfold.engine.rules.effects import ReleaseSlot
from fanfold.service.effects import EffectRunner
from tests.support.builders import a_run
from tests.support.memory import memory_services
from tests.support.virtual import VirtualClock, virtually


class SlowSlots:
    """Places whose answer takes ten seconds."""

    async def give_back(self, *args: Any, **given: Any) -> None:
        await asyncio.sleep(10)


def an_aftermath() -> EffectRunner:
    slots: Any = SlowSlots()
    return EffectRunner(replace(memory_services(VirtualClock()), slots=slots))


@virtually
async def test_who_is_cancelled_while_it_waits_for_what_follows_leaves_nothing_behind() -> None:
    """Simulation seed 301179 found it: a place's return outlived its invocation, which was broken off just then."""
    aftermath = an_aftermath()
    aftermath.follow(
        a_run(), ReleaseSlot(class_name="model", slot=Slot(shard=0, hour=1)), committed=Moment.of(VirtualClock())
    )
    waiting = asyncio.create_task(aftermath.done())
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Counted:
    """Places that count what is returned; `before` happens between the order to return one and the call."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.returned = 0
        self._before = before

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool]) -> None:
        self._before()
        if not in_time():
            raise Unavailable("too late")
        self.returned += 1


class TwoClocks(VirtualClock):
    """A machine's clocks, of which either may stand still while its process is frozen."""

    def __init__(self) -> None:
        self.wall_ahead = 0.0
        self.monotonic_ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.wall_ahead)

    def monotonic(self) -> float:
        return super().monotonic() + self.monotonic_ahead


@pytest.mark.parametrize("clock_that_goes_on", ["wall_ahead", "monotonic_ahead"])
@pytest.mark.parametrize("when", ["before its order", "before its call"])
@virtually
async def test_a_process_that_was_frozen_after_its_commit_returns_no_slot(clock_that_goes_on: str, when: str) -> None:
    clock = TwoClocks()

    def freeze() -> None:
        setattr(clock, clock_that_goes_on, 3_700.0)

    slots: Any = Counted(freeze if when == "before its call" else lambda: None)
    aftermath = EffectRunner(replace(memory_services(clock), slots=slots))
    committed = Moment.of(clock)
    if when == "before its order":
        freeze()
    aftermath.follow(a_run(), ReleaseSlot(class_name="model", slot=Slot(shard=0, hour=1)), committed=committed)
    await aftermath.done()
    assert slots.returned == 0


@virtually
async def test_a_slot_is_returned_while_there_is_time() -> None:
    clock, slots = TwoClocks(), Counted()
    port: Any = slots
    aftermath = EffectRunner(replace(memory_services(clock), slots=port))
    committed = Moment.of(clock)
    clock.wall_ahead = clock.monotonic_ahead = 59.0
    aftermath.follow(a_run(), ReleaseSlot(class_name="model", slot=Slot(shard=0, hour=1)), committed=committed)
    await aftermath.done()
    assert slots.returned == 1
