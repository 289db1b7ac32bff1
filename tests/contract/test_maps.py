"""What every store of batches' records, and everything that works on maps elsewhere, promises."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.errors import LimitExceeded, NewerSchema
from fanfold.engine.language.maps import ItemError, ItemResult, MapRecord
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import Execution, MapKey
from tests.contract.backends import NEWER, PARTS, Backend
from tests.support.clock import START

EXPIRY = START + timedelta(days=395)
KEY = MapKey(tenant="acme", run_id="r1", submission="s1", step="files")
RESULTS = (
    ItemResult(index=50, output={"text": "grüß dich", "list": [1, 2.5, None, True]}),
    ItemResult(index=51, output=None),
    ItemResult(index=52, output=BlobRef(key="acme/r1/s1/files/item-52", bytes=9_000, sha256="ab" * 32)),
    ItemResult(index=53, error=ItemError(index=53, type="Boom", message="it broke")),
    ItemResult(index=54, output=["looks", 2, "like a reference"]),
)


def a_record(first: int = 50, *, try_number: int = 1, results: tuple[ItemResult, ...] = RESULTS) -> MapRecord:
    return MapRecord(try_number=try_number, first=first, plan="0123456789abcdef", results=results)


async def test_a_record_reads_back(backend: Backend) -> None:
    records = backend.map_records()
    await records.put(KEY, a_record(), expires_at=EXPIRY)
    assert await records.read(KEY) == [a_record()]


@pytest.mark.parametrize("damage", PARTS.values(), ids=PARTS)
async def test_a_damaged_record_costs_only_what_it_tells(backend: Backend, damage: Mapping[str, Any]) -> None:
    records = backend.map_records()
    for first in (0, 50, 100):
        await records.put(KEY, a_record(first), expires_at=EXPIRY)
    await backend.damage_batch(records, KEY, a_record(50), damage)
    if damage is NEWER:
        with pytest.raises(NewerSchema):
            await records.read(KEY)
        return
    before, damaged, after = await records.read(KEY)
    assert (before, after) == (a_record(0), a_record(100))
    assert (damaged.try_number, damaged.first, damaged.results, bool(damaged.damage)) == (1, 50, (), True)
    assert await records.has(KEY, try_number=1, first=50), "what ended is not worked on again"


async def test_the_first_record_of_a_batch_stays(backend: Backend) -> None:
    records = backend.map_records()
    await records.put(KEY, a_record(), expires_at=EXPIRY)
    await records.put(KEY, a_record(results=RESULTS[:1]), expires_at=EXPIRY)
    assert await records.read(KEY) == [a_record()]


async def test_records_come_by_try_and_first_index_as_numbers(backend: Backend) -> None:
    records = backend.map_records()
    order = [(1, 0), (1, 9), (1, 10), (1, 100), (2, 0), (10, 0)]
    for number, first in reversed(order):
        await records.put(KEY, a_record(first, try_number=number), expires_at=EXPIRY)
    assert [(record.try_number, record.first) for record in await records.read(KEY)] == order


async def test_a_record_is_there_or_not(backend: Backend) -> None:
    records = backend.map_records()
    await records.put(KEY, a_record(), expires_at=EXPIRY)
    assert await records.has(KEY, try_number=1, first=50)
    assert not await records.has(KEY, try_number=2, first=50)
    assert not await records.has(KEY, try_number=1, first=0)


async def test_maps_of_other_tenants_runs_lives_and_steps_are_others(backend: Backend) -> None:
    records = backend.map_records()
    await records.put(KEY, a_record(), expires_at=EXPIRY)
    for change in ({"tenant": "other"}, {"run_id": "r2"}, {"submission": "s2"}, {"step": "file"}):
        assert await records.read(replace(KEY, **change)) == []


async def test_more_than_a_megabyte_of_records_reads_back(backend: Backend) -> None:
    records = backend.map_records()
    chance = random.Random(1)
    put = [
        a_record(n, results=(ItemResult(index=n, output=base64.b64encode(chance.randbytes(200_000)).decode()),))
        for n in range(6)
    ]
    for record in put:
        await records.put(KEY, record, expires_at=EXPIRY)
    assert await records.read(KEY) == put


async def test_a_record_over_an_items_limit_is_refused_by_its_name(backend: Backend) -> None:
    noise = base64.b64encode(random.Random(1).randbytes(500_000)).decode()
    with pytest.raises(LimitExceeded, match="item_bytes"):
        await backend.map_records().put(KEY, a_record(results=(ItemResult(index=50, output=noise),)), expires_at=EXPIRY)


# --- executions ---------------------------------------------------------------------------------

EXECUTION = Execution(
    name="r1-files-1-s1",
    class_name="model",
    tenant="acme",
    run_id="r1",
    submission="s1",
    step="files",
    try_number=1,
    batches="acme/r1/s1/files/map-1-w1.batches",
    batches_at_once=4,
)


async def test_an_execution_goes_on_until_it_is_stopped(backend: Backend) -> None:
    fan_out = await backend.fan_out()
    assert not await fan_out.going(EXECUTION)
    assert await fan_out.start(EXECUTION)
    assert await fan_out.going(EXECUTION)
    assert not await fan_out.throttled(EXECUTION)
    await fan_out.stop(EXECUTION)
    assert not await fan_out.going(EXECUTION)
    # Broken off is not the same as never begun.
    assert not await fan_out.throttled(EXECUTION)


async def test_a_name_is_started_once(backend: Backend) -> None:
    fan_out = await backend.fan_out()
    assert await fan_out.start(EXECUTION)
    # Of one that goes on, some say that they started it, some that it was there; there is one all the same.
    await fan_out.start(EXECUTION)
    assert await fan_out.going(EXECUTION)
    await fan_out.stop(EXECUTION)
    assert not await fan_out.start(EXECUTION)
    assert not await fan_out.going(EXECUTION)


async def test_stopping_what_is_over_or_never_was_does_nothing(backend: Backend) -> None:
    fan_out = await backend.fan_out()
    await fan_out.stop(EXECUTION)
    assert await fan_out.start(EXECUTION), "what never was is not over"
    assert await fan_out.going(EXECUTION)
    await fan_out.stop(EXECUTION)
    await fan_out.stop(EXECUTION)
    assert not await fan_out.going(EXECUTION)
