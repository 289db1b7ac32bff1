"""What every clock and every source of names promises, the tests' own included."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest

from fanfold.engine.ports import Clock, Ids
from fanfold.service.clock import SystemClock, SystemIds
from tests.support.clock import FakeClock, SeededIds

CLOCKS = [SystemClock, FakeClock]
IDS = [SystemIds, SeededIds]


@pytest.mark.parametrize("make", CLOCKS)
def test_wall_time_is_utc_in_whole_milliseconds(make: type[Clock]) -> None:
    now = make().now()
    assert now.utcoffset() == timedelta(0)
    assert now.microsecond % 1000 == 0


@pytest.mark.parametrize("make", CLOCKS)
async def test_a_sleep_takes_its_time(make: type[Clock]) -> None:
    clock = make()
    before = clock.monotonic()
    sleep = asyncio.create_task(clock.sleep(0.05))
    await asyncio.sleep(0)
    assert not sleep.done()
    if isinstance(clock, FakeClock):
        await clock.advance(0.05)
    await asyncio.wait_for(sleep, timeout=5)
    assert clock.monotonic() - before >= 0.049


@pytest.mark.parametrize("make", IDS)
def test_a_token_is_12_bytes_in_16_url_safe_characters(make: type[Ids]) -> None:
    ids = make()
    tokens = {ids.token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(token) == 16 and len(base64.urlsafe_b64decode(token)) == 12 for token in tokens)


@pytest.mark.parametrize("make", IDS)
def test_a_random_number_is_below_one(make: type[Ids]) -> None:
    ids = make()
    numbers = [ids.random() for _ in range(1000)]
    assert all(0 <= number < 1 for number in numbers)
    assert min(numbers) < 0.5 < max(numbers)


def test_the_same_seed_draws_the_same() -> None:
    first, second, other = SeededIds(7), SeededIds(7), SeededIds(8)
    drawn = [first.token(), first.random()]
    assert drawn == [second.token(), second.random()]
    assert drawn != [other.token(), other.random()]


async def test_a_fake_clock_wakes_its_sleepers_in_order() -> None:
    clock, woken = FakeClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3.0, 1.0, 2.0, 9.0)]
    await clock.advance(5)
    assert woken == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert clock.sleepers == 1
    await clock.advance(5)
    await asyncio.gather(*tasks)
    assert clock.monotonic() == 10


async def test_a_fake_wall_clock_can_jump_alone() -> None:
    clock = FakeClock()
    clock.set_now(clock.now() - timedelta(hours=1))
    assert clock.monotonic() == 0
    before = clock.now()
    await clock.advance(1.5)
    assert clock.now() - before == timedelta(seconds=1.5)
