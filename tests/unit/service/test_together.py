"""Calls side by side: an error waits for the others."""

from __future__ import annotations

import asyncio

import pytest

from fanfold.engine.errors import Unavailable
from fanfold.service.gather import both, together
from tests.support.virtual import virtually


@virtually
async def test_an_error_is_raised_only_when_no_call_is_under_way_any_more() -> None:
    done: list[str] = []

    async def slow() -> str:
        await asyncio.sleep(5)
        done.append("slow")
        return "slow"

    async def failing() -> str:
        raise Unavailable("blobs.get")

    with pytest.raises(Unavailable):
        await together(slow(), failing(), slow())
    assert done == ["slow", "slow"]
    with pytest.raises(Unavailable):
        await both(failing(), slow())
    assert done == ["slow"] * 3


@virtually
async def test_answers_come_in_the_order_of_the_calls() -> None:
    async def after(seconds: int) -> int:
        await asyncio.sleep(seconds)
        return seconds

    assert await together(after(3), after(1), after(2)) == [3, 1, 2]
    assert await both(after(2), asyncio.sleep(0, "now")) == (2, "now")
