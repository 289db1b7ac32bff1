"""Slot repair: leaks heal, live places stay, a pass is bounded (R6, R14)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from fanfold.engine.errors import Throttled
from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.run import Run, Slot, Status
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.sweeper.slot_repair import STATE
from fanfold.service.telemetry.reporting import flush
from tests.support.builders import a_run
from tests.support.sweeping import Swept

HOUR = 3_600
SECONDS = {
    "slot_hour_seconds": 10,
    "slot_return_seconds": 2,
    "slot_void_seconds": 5,
    "repair_after_seconds": 10,
    "repair_again_seconds": 4,
    "clock_skew_seconds": 1,
}
"""Windows of seconds, in the proportions of the shipped ones."""


def depth(it: Swept) -> Any:
    return it.slots.load("model")


async def test_a_slot_nobody_has_is_healed_three_hours_after_its_hour() -> None:
    it = await Swept().with_tenants()
    await it.slots.reserve("model", now=it.clock.now())
    await it.clock.advance(4 * HOUR - 60)
    assert [(await it.sweep()).slots_repaired for _ in range(3)] == [0, 0, 0]
    await it.clock.advance(60)
    assert (await it.sweep()).slots_repaired == 0
    await it.clock.advance(60)
    assert (await it.sweep()).slots_repaired == 0
    await it.clock.advance(60)
    assert (await it.sweep()).slots_repaired == 1
    assert (await depth(it)).depth == 0


async def test_the_slots_of_queued_rows_stay() -> None:
    it = await Swept().with_tenants()
    runs = [await it.submit() for _ in range(3)]
    await it.slots.reserve("model", now=it.clock.now())
    assert runs[0].slot is not None
    await it.clock.advance(4 * HOUR)
    await passes(it, 10)
    assert await it.slots.held("model") == {runs[0].slot: 3}


async def test_leaks_of_several_hours_shards_and_classes_heal_side_by_side() -> None:
    classes = {"model": ClassSettings(max_queue_depth=100), "harness": ClassSettings(max_queue_depth=100)}
    it = await Swept(classes=classes, slot_shards=3).with_tenants("acme", "beta")
    for _ in range(4):
        await it.submit()
        await it.submit(tenant="beta")
        for name in ("model", "model", "harness"):
            await it.slots.reserve(name, now=it.clock.now())
        await it.clock.advance(HOUR)
    await it.clock.advance(4 * HOUR)
    reports = await passes(it, 5)
    assert sum(report.slots_repaired for report in reports) == 12
    assert (await it.slots.load("harness")).depth == 0
    assert (await depth(it)).depth == 8


async def test_a_return_on_its_way_is_waited_for() -> None:
    it = await Swept().with_tenants()
    run, other = await it.submit(), await it.submit()
    await it.clock.advance(4 * HOUR)
    slot = await it.leave(run)
    await it.sweep()  # finds a place too many, which is on its way back
    await it.clock.advance(60)
    await it.slots.give_back("model", slot)
    await passes(it, 10)
    assert await it.slots.held("model") == {other.slot: 1}


async def test_under_a_steady_drain_nothing_is_subtracted() -> None:
    it = await Swept().with_tenants()
    runs = [await it.submit() for _ in range(30)]
    await it.clock.advance(4 * HOUR)
    for run in runs[:-1]:
        # Each pass finds one surplus place, and each is another one.
        slot = await it.leave(run)
        assert (await it.sweep()).slots_repaired == 0
        await it.slots.give_back("model", slot)
        await it.clock.advance(120)
    assert (await depth(it)).depth == 1


async def test_rows_of_other_states_and_hours_are_not_counted() -> None:
    it = await Swept().with_tenants()
    now = it.clock.now()
    for number, status in enumerate((Status.RUNNING, Status.WAITING, Status.PAUSED), start=50):
        row = a_run(number, status=status, version=2, owner="c" * 16, due_at=None, slot=None)
        await it.runs.put(row, IfAbsent(), now=now)
    await it.slots.reserve("model", now=now)
    await it.clock.advance(HOUR)
    await it.submit()
    await it.clock.advance(5 * HOUR)
    reports = await passes(it, 4)
    assert sum(report.slots_repaired for report in reports) == 1
    assert (await depth(it)).depth == 1


async def test_the_slot_of_a_run_that_is_paused_in_the_queue_is_no_leak() -> None:
    it = await Swept().with_tenants()
    now = it.clock.now()
    slot = (await it.slots.reserve("model", now=now)).slot
    paused = a_run(50, status=Status.PAUSED, version=2, slot=slot, paused_at=now, created_at=now)
    await it.runs.put(paused, IfAbsent(), now=now)
    await it.clock.advance(6 * HOUR)
    reports = await passes(it, 4)
    assert sum(report.slots_repaired for report in reports) == 0
    assert (await depth(it)).depth == 1


async def test_a_deployment_with_nothing_to_repair_is_asked_once_a_pass() -> None:
    it = await Swept().with_tenants()
    await it.submit()
    await it.sweep()
    it.calls.clear()
    await it.sweep()
    assert it.calls["slots.held"] == 1
    assert it.calls["runs.page"] == 2  # the cursor over the active runs, and where it ends


async def test_a_pass_counts_a_part_and_the_next_goes_on() -> None:
    it = await Swept(repair_batch=10).with_tenants("acme", "beta")
    for _ in range(20):
        await it.submit()
        await it.submit(tenant="beta")
    await it.slots.reserve("model", now=it.clock.now())
    await it.clock.advance(4 * HOUR)
    rows = []
    for _ in range(20):
        it.calls.clear()
        report = await it.sweep()
        rows.append(it.calls["runs.page"])
        await it.clock.advance(60)
        if report.slots_repaired:
            break
    assert report.slots_repaired == 1
    assert 8 < len(rows) < 14  # 40 rows twice, ten a pass, and a pause between
    assert max(rows) <= 8
    assert (await depth(it)).depth == 40


async def test_a_pass_that_failed_is_made_up_for_by_the_next() -> None:
    it = await Swept().with_tenants()
    await it.slots.reserve("model", now=it.clock.now())
    await it.clock.advance(4 * HOUR)
    await it.sweep()
    await it.clock.advance(120)
    write_off = it.slots.write_off

    async def throttled(*args: Any, **given: Any) -> bool:
        raise Throttled("busy")

    it.slots.write_off = throttled  # type: ignore[method-assign]  # one service call fails
    with pytest.raises(ExceptionGroup, match="parts of the sweep"):
        await it.sweep()
    it.slots.write_off = write_off  # type: ignore[method-assign]  # and works again
    assert (await it.sweep()).slots_repaired == 1


async def test_two_sweepers_with_one_memory_heal_a_leak_once() -> None:
    it = await Swept().with_tenants()
    run = await it.submit()
    await it.slots.reserve("model", now=it.clock.now())
    await it.clock.advance(4 * HOUR)
    await it.sweep()
    mark = await it.sweeper_state.get(STATE)
    await it.clock.advance(120)
    assert (await it.sweep()).slots_repaired == 1
    await it.sweeper_state.put(STATE, mark)
    assert (await it.sweep()).slots_repaired == 0
    assert await it.slots.held("model") == {run.slot: 1}


async def test_a_mark_of_another_version_of_the_code_is_forgotten() -> None:
    it = await Swept().with_tenants()
    await it.sweeper_state.put(STATE, {"format": 99, "walk": "?"})
    await it.slots.reserve("model", now=it.clock.now())
    await it.clock.advance(4 * HOUR)
    assert sum(report.slots_repaired for report in await passes(it, 5)) == 1


async def test_what_is_healed_is_metered(capsys: pytest.CaptureFixture[str]) -> None:
    flush()
    it = await Swept().with_tenants()
    await it.slots.reserve("model", now=it.clock.now())
    await it.clock.advance(4 * HOUR)
    await passes(it, 4)
    capsys.readouterr()
    flush()
    assert '"SlotsRepaired":[1' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize(
    "broken", [{"repair_again_seconds": 60}, {"repair_after_seconds": 7_200}, {"slot_return_seconds": 115}]
)
def test_windows_that_would_overlap_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"repair_(again|after)_seconds"):
        Settings(**broken)


@pytest.mark.parametrize("seed", range(80))
async def test_leaks_heal_and_live_slots_stay_whatever_happens(seed: int) -> None:
    """Submits, claims, returns that come, are late or get lost, and sweeps, in an order drawn at random."""
    chance = random.Random(seed)
    it = await Swept(
        **SECONDS,
        lease_seconds=60,
        slot_shards=chance.choice((1, 2)),
        repair_batch=chance.choice((2, 5, 100)),
        classes={"model": ClassSettings(max_queue_depth=0)},
    ).with_tenants()
    queued: list[Run] = []
    returns: list[tuple[float, Slot]] = []
    for _ in range(chance.randrange(100, 200)):
        match chance.randrange(10):
            case 0 | 1 | 2:
                queued.append(await it.submit())
            case 3:
                await it.slots.reserve("model", now=it.clock.now())
            case 4 | 5 if queued:
                slot = await it.leave(queued.pop(chance.randrange(len(queued))))
                if chance.random() < 0.8:
                    returns.append((it.clock.monotonic() + chance.choice((0, 0.5, 2)), slot))
            case 6 | 7:
                await it.clock.advance(chance.choice((0.5, 1, 3)))
            case _:
                await it.sweep()
        due = [slot for at, slot in returns if at <= it.clock.monotonic()]
        returns = [(at, slot) for at, slot in returns if at > it.clock.monotonic()]
        for slot in due:
            await it.slots.give_back("model", slot)
        assert covers(await it.slots.held("model"), await it.queued())
    for _, slot in returns:
        await it.slots.give_back("model", slot)
    await it.clock.advance(SECONDS["slot_hour_seconds"] + SECONDS["repair_after_seconds"])
    for _ in range(400):
        if await it.slots.held("model") == await it.queued():
            break
        await it.sweep()
        await it.clock.advance(1)
    assert dict(await it.slots.held("model")) == dict(await it.queued())


def covers(held: Mapping[Slot, int], queued: Mapping[Slot, int]) -> bool:
    """Whether each counter has a place for each row."""
    return all(held.get(slot, 0) >= rows for slot, rows in queued.items())


async def passes(it: Swept, count: int) -> list[Any]:
    """A pass a minute."""
    reports = []
    for _ in range(count):
        reports.append(await it.sweep())
        await it.clock.advance(60)
    return reports
