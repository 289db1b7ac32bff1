"""What follows a commit is given up with the one who waits for it, whenever that is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from functions.engine.effects import ReturnPlace
from functions.engine.run import Place
from functions.runtime.aftermath import Aftermath
from tests.support.builders import a_run
from tests.support.memory import memory_services
from tests.support.virtual import VirtualClock, virtually


class SlowPlaces:
    """Places whose answer takes ten seconds."""

    async def give_back(self, *args: Any) -> None:
        await asyncio.sleep(10)


def an_aftermath() -> Aftermath:
    places: Any = SlowPlaces()
    return Aftermath(replace(memory_services(VirtualClock()), places=places))


@virtually
async def test_who_is_cancelled_while_it_waits_for_what_follows_leaves_nothing_behind() -> None:
    """Simulation seed 301179 found it: a place's return outlived its invocation, which was broken off just then."""
    aftermath = an_aftermath()
    aftermath.follow(a_run(), ReturnPlace(class_name="model", place=Place(shard=0, hour=1)), committed=0.0)
    waiting = asyncio.create_task(aftermath.done())
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
