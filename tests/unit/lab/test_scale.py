"""The model of scale: what limits let through, what Lambda allows, what a rate needs; and that the real code agrees."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from matplotlib.figure import Figure

from fanfold.engine.record.run import Status
from fanfold.service.worker.dispositions import THROTTLE_DELAY
from lab.scale import bursts
from lab.scale.deployment import Deployment, Kind, shipped
from lab.scale.flow import Flow, burst, drained, flow, poisson
from lab.scale.gates import Gates, Rows, Tokens, units_of_put
from lab.scale.levels import model_level, real_level, same_level
from lab.scale.limits import LATENCIES, MAPPING_MOST
from lab.scale.play import by_functions, by_processes
from lab.scale.profile import Profile, Stage, ends, of_functions, of_processes, rate
from lab.scale.room import ACCOUNT, MAXIMUM, RAMP, Functions, Processes
from lab.scale.sizing import SETTINGS, ceiling, ceilings, ladder, scaled, sized
from lab.scale.sweeps import carried, needs, sweep
from loadtest.curves import curves
from loadtest.workflows import model_call
from tests.support.builders import a_run
from tests.support.clock import START

CALL = Profile(
    stages=[
        Stage(seconds=0.01, spread=0.0, units={Kind.TABLE: 1.0}),
        Stage(
            seconds=0.5,
            spread=0.1,
            units={Kind.TABLE: 1.0, Kind.LIST: 2.0, Kind.ACTIVE: 1.0, Kind.ENDED: 1.0},
        ),
    ],
    release_seconds=0.04,
    turn_seconds=0.55,
)
"""A run of one call, as the real code takes it (about: `test_the_real_code_…` takes it from there)."""

WIDE = Deployment(slot_shards=64, index_shards=64, warm_writes=1e6, maximum_concurrency=5)
CALL_SECONDS = 0.0015


def test_a_limit_gives_a_second_at_once_and_then_what_comes_in() -> None:
    tokens = Tokens(10)
    for _ in range(10):
        assert tokens.wait(0.0, 1) == 0
        tokens.take(0.0, 1)
    assert tokens.wait(0.0, 1) == pytest.approx(0.1)
    assert tokens.wait(0.1, 1) == pytest.approx(0.0)
    tokens.take(100.0, 10)
    assert tokens.wait(100.0, 1) > 0, "what was not used in a hundred seconds is not kept"


def test_a_write_that_one_limit_refuses_takes_nothing_of_the_others() -> None:
    gates = Gates(Deployment(partition_writes=1, warm_writes=100))
    write = {(Kind.TABLE, 0): 1.0, (Kind.SLOTS, 0): 1.0}
    assert gates.passed(0.0, write) is None
    assert gates.passed(0.0, write) is Kind.SLOTS
    assert gates.used == {Kind.TABLE: 1.0, Kind.SLOTS: 1.0}
    assert gates.refused == {Kind.SLOTS: 1}
    assert gates.passed(0.0, {**write, (Kind.SLOTS, 0): 0.0}) is None


def test_index_rows_are_written_when_a_run_comes_goes_and_waits_and_not_between() -> None:
    deployment = Deployment()

    def rows(status: Status, **changes: Any) -> Rows:
        return Rows.of(replace(a_run(), status=status, **changes), deployment)

    def units(before: Rows | None, after: Rows) -> dict[Kind, float]:
        return {kind: count for (kind, _), count in units_of_put(before, after).items()}

    queued, running = rows(Status.QUEUED), rows(Status.RUNNING)
    assert units(None, queued) == {Kind.TABLE: 1, Kind.ACTIVE: 1, Kind.LIST: 1}
    assert units(queued, running) == {Kind.TABLE: 1}
    waiting = rows(Status.WAITING, due_at=START)
    assert units(running, waiting) == {Kind.TABLE: 1, Kind.WAITING: 1, Kind.DUE: 1}
    later = rows(Status.WAITING, due_at=START + timedelta(seconds=1))
    assert units(waiting, later) == {Kind.TABLE: 1, Kind.WAITING: 2, Kind.DUE: 2}
    assert units(running, rows(Status.SUCCEEDED)) == {Kind.TABLE: 1, Kind.ACTIVE: 1, Kind.ENDED: 1, Kind.LIST: 2}


def test_a_mapping_begins_with_five_batches_and_grows_by_five_a_second_up_to_the_least_bound() -> None:
    room = Functions(deployment=replace(shipped(), maximum_concurrency=33))
    assert [room.at(seconds)[0] for seconds in (0, 1, 5.6, 60)] == [5, 10, 33, 33]
    assert (room.at(0)[1], room.at(60)[1]) == (RAMP, MAXIMUM)
    wide = Deployment(maximum_concurrency=1_000, account_concurrency=300)
    assert Functions(deployment=wide, elsewhere=50).at(3_600) == (250, ACCOUNT)
    most = replace(wide, maximum_concurrency=5_000, account_concurrency=5_000)
    assert Functions(deployment=most).most == MAPPING_MOST


def test_latencies_have_the_median_and_the_tail_they_are_said_to_have() -> None:
    for latency in LATENCIES.values():
        assert latency.seconds(0.0) == latency.median
        assert latency.seconds(2.326) == pytest.approx(latency.p99)


def test_without_a_limit_in_the_way_workers_are_all_that_binds() -> None:
    one, many = (drained(CALL, WIDE, workers=workers, runs=20 * workers + 200) for workers in (1, 50))
    assert many.rate == pytest.approx(50 / CALL.turn_seconds, rel=0.03)
    assert many.rate / one.rate == pytest.approx(50, rel=0.05)
    assert (many.binding, many.put_back, many.throttled) == ("workers", 0, {})


@pytest.mark.parametrize(
    ("narrow", "binding", "per_second"),
    [
        ({"slot_shards": 1}, Kind.SLOTS, 50),
        ({"slot_shards": 2}, Kind.SLOTS, 100),
        ({"index_shards": 1}, Kind.ACTIVE, 50),
        ({"warm_writes": 150.0}, Kind.TABLE, 50),
    ],
)
def test_a_limit_that_is_used_up_is_named_and_its_setting_moves_it(
    narrow: dict[str, Any], binding: Kind, per_second: float
) -> None:
    told = drained(CALL, replace(WIDE, partition_writes=50, **narrow), workers=80, runs=2_000)
    assert told.binding == binding
    assert told.rate == pytest.approx(per_second, rel=0.06)


def test_claims_that_are_refused_too_often_go_back_for_a_while_and_all_runs_end_at_last() -> None:
    told = drained(CALL, Deployment(warm_writes=100), workers=200, runs=1_000)
    assert told.runs == 1_000
    assert told.put_back > 0
    assert told.last_end > THROTTLE_DELAY.total_seconds()


def test_a_submit_that_finds_no_unit_of_its_counter_is_refused_and_others_are_carried() -> None:
    narrow = replace(WIDE, slot_shards=1, partition_writes=100)
    arrivals = poisson(100, 20)
    told = flow(CALL, narrow, Processes(workers=20), arrivals, batch_size=10, submitted=True)
    assert told.refused > 0
    assert told.runs + told.refused == len(arrivals)
    two = flow(CALL, replace(narrow, slot_shards=3), Processes(workers=20), arrivals, batch_size=10, submitted=True)
    assert (two.refused, two.runs) == (0, len(arrivals))


def test_the_same_flow_comes_of_the_same_seed() -> None:
    def told(seed: int) -> Flow:
        return flow(CALL, shipped(), Functions(deployment=shipped()), burst(500), batch_size=10, seed=seed)

    assert told(1) == told(1)
    assert told(1).last_end != told(2).last_end


def test_ceilings_follow_from_writes_and_turns_and_the_least_of_them_binds() -> None:
    found = ceilings(CALL, shipped())
    assert found[Kind.SLOTS] == 500, "a place is taken and returned"
    assert found[Kind.ACTIVE] == 500, "a row comes and goes"
    assert found[Kind.TABLE] == 800, "three puts and two of the place"
    assert found[MAXIMUM] == pytest.approx(33 * 10 / 0.55)
    assert ceiling(CALL, shipped(), submitted=False).binding == MAXIMUM


def test_a_deployment_sized_for_a_rate_carries_it_and_none_of_its_limits_binds() -> None:
    base = replace(shipped(), maximum_concurrency=1_000, account_concurrency=3_000)
    deployment = sized(CALL, 1_000, submitted=True, base=base)
    assert (deployment.slot_shards, deployment.index_shards) == (3, 3)
    assert ceiling(CALL, deployment).rate >= 1_000 / 0.8 - 1e-6
    told = carried(CALL, deployment, 1_000, seconds=4)
    assert told.refused_share == 0
    assert told.wait_p99 < 1


def test_shards_for_a_thousand_submits_a_second_are_counted_from_the_writes_of_a_run() -> None:
    waiting = replace(CALL, stages=[*CALL.stages, Stage(seconds=0.0, spread=0.0, units={Kind.WAITING: 2.0})])
    told = {setting: (need.writes_a_run, need.just, need.planned) for setting, need in needs(CALL, waiting).items()}
    assert told == {"slot_shards": (2, 2, 3), "index_shards": (2, 2, 3), "due_shards": (2, 2, 3)}


def test_the_way_up_raises_what_binds_each_time_and_never_falls() -> None:
    steps = ladder(CALL, shipped(), target=5_000)
    rates = [step.ceiling.rate for step in steps]
    assert rates == sorted(rates)
    assert rates[-1] >= 5_000
    assert all(step.changed for step in steps[1:])


def test_a_setting_grows_no_further_than_it_can() -> None:
    assert scaled(shipped(), "maximum_concurrency", 100).maximum_concurrency == 1_000
    assert [point.value for point in sweep(CALL, "batch_size")] == [2, 5, 10]
    alone = [point.alone for point in sweep(CALL, "slot_shards")]
    assert alone == [500 * point.value for point in sweep(CALL, "slot_shards")]


def test_a_larger_burst_on_what_is_shipped_is_bound_by_its_lane_and_takes_longer() -> None:
    small, large = (bursts.drain(CALL, shipped(), runs) for runs in (500, 8_000))
    assert large.binding == MAXIMUM
    assert large.drain_seconds > small.drain_seconds
    assert large.accept_seconds == 8.0, "one counter takes a thousand submits a second while nothing drains"


def test_a_level_tells_waits_under_load_beside_those_of_a_backlog() -> None:
    level = model_level(CALL, WIDE, 20)
    assert level.loaded_wait_p50 is not None
    assert level.loaded_wait_p50 < 0.2 < level.wait_p50
    assert level.refused_share == 0
    assert level.efficiency == pytest.approx(1, abs=0.05)


@pytest.fixture(scope="module")
def calibrated() -> Profile:
    """What the real code takes for a run of one call."""
    played = by_processes(model_call(500), WIDE, workers=4, runs=240, call_seconds=CALL_SECONDS)
    return of_processes(played, 4)


def test_the_real_code_takes_two_puts_and_a_slot_of_a_worker_for_a_run_of_one_call(calibrated: Profile) -> None:
    assert len(calibrated.stages) == 2
    assert calibrated.units(submitted=True) == CALL.units(submitted=True)
    assert calibrated.turn_seconds == pytest.approx(CALL.turn_seconds, rel=0.1)


@pytest.mark.parametrize(
    ("deployment", "workers", "tolerance"),
    [
        (WIDE, 16, 0.05),
        (Deployment(partition_writes=25, warm_writes=1e6), 40, 0.1),
    ],
    ids=["workers bind", "partitions bind"],
)
def test_the_real_code_and_the_model_agree(
    calibrated: Profile, deployment: Deployment, workers: int, tolerance: float
) -> None:
    level, played = real_level(model_call(500), deployment, workers, alone=None, call_seconds=CALL_SECONDS)
    model = same_level(calibrated, deployment, workers)
    assert len(played.courses) == model.runs
    assert model.rate == pytest.approx(level.rate, rel=tolerance)
    assert model.last_end == pytest.approx(max(ends(played)), rel=tolerance)


def test_the_real_code_in_functions_and_the_model_agree_while_a_mapping_grows() -> None:
    profile = of_functions(by_functions(model_call(500), WIDE, runs=200, call_seconds=CALL_SECONDS))
    played = by_functions(model_call(500), shipped(), runs=400, call_seconds=CALL_SECONDS)
    told = flow(profile, shipped(), Functions(deployment=shipped()), burst(400), batch_size=10)
    assert told.last_end == pytest.approx(max(ends(played)), rel=0.1)


def test_every_curve_of_a_result_is_drawn_from_its_figures() -> None:
    levels = {str(workers): asdict(model_level(CALL, WIDE, workers)) for workers in (1, 10)}
    figures = {
        "real": levels,
        "model": {"as shipped": levels, "sized": levels},
        "bursts": {bursts.SHIPPED: {str(runs): asdict(bursts.drain(CALL, shipped(), runs)) for runs in (100, 300)}},
        "shipped": asdict(shipped()),
        "sweeps": {setting: [asdict(point) for point in sweep(CALL, setting)] for setting in SETTINGS},
    }
    for draw in curves("scale", figures, []):
        axes = Figure().add_subplot()
        draw(axes)
        assert axes.get_lines()
        assert axes.get_xlabel()
        assert axes.get_ylabel()


def test_a_rate_of_too_few_moments_is_none() -> None:
    with pytest.raises(ValueError, match="too few"):
        rate([1.0] * 9)
