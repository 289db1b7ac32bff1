"""Freezes, orders to stop, doubled and lost messages, the emulator gone: nothing is lost, nothing done twice.

The simulation finds the schedules nobody thinks of; this and `test_kills.py` show that the real
processes, queues and signals behave as the simulated ones do. Whatever was done to them, the runs
are judged by the same evidence in the end: rows, journals, the ledger of real executions, places,
dead letters. `make faults RUNS=100 SEED=7` does the same with more.
"""

from __future__ import annotations

import signal
import time

import pytest

from fanfold.engine.record.journal import EventType
from fanfold.engine.record.messages import RESUME
from fanfold.engine.record.run import Status
from tests.support.evidence import gather
from tests.support.load import QUICK, RUNS, TIMEOUT_SECONDS, judged, mixed, processes
from tests.support.site import LANE, Site, until, worker_pid

pytestmark = [pytest.mark.emulator]


# --- stops ----------------------------------------------------------------------------------------


def test_a_worker_stopped_past_its_lease_and_continued_writes_nothing_more_and_goes_on(site: Site) -> None:
    with processes(site, 0, concurrency=10) as fleet:
        ids = site.submit([("speck", {"pace": {"ms": 4000}})] * 4)
        (frozen,) = fleet.start()
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) == frozen),
            seconds=TIMEOUT_SECONDS,
            what=lambda: "the worker has not claimed all runs",
        )
        fleet.signal(frozen, signal.SIGSTOP)
        (other,) = fleet.start()
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) != frozen),
            seconds=TIMEOUT_SECONDS,
            what=lambda: "nobody has taken over from the frozen worker",
        )
        fleet.signal(frozen, signal.SIGCONT)
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        fleet.signal(other, signal.SIGKILL)
        later = site.submit([("speck", QUICK)])
        site.ended(later, seconds=TIMEOUT_SECONDS)
        assert {worker_pid(run) for run in site.rows(later).values()} == {frozen}
        evidence = judged(site, [*ids, *later])
    assert evidence.statuses() == {"succeeded": 5}
    assert min(evidence.runs[run_id].epoch for run_id in ids) >= 2


def test_a_worker_told_to_stop_hands_its_runs_over_and_interrupts_nothing(site: Site) -> None:
    with processes(site, 0, concurrency=10) as fleet:
        ids = site.submit(mixed(6, {"pace": {"ms": 1500}}))
        (old,) = fleet.start()
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) == old),
            seconds=TIMEOUT_SECONDS,
            what=lambda: "the worker has not claimed all runs",
        )
        fleet.signal(old, signal.SIGTERM)
        assert fleet.wait(old) == 0
        rows = site.rows(ids)
        left = [run for run in rows.values() if not run.terminal]
        assert left, "there was nothing to hand over"
        assert {run.status for run in left} == {Status.WAITING}
        assert gather(rows, site.ledger).of(EventType.STEP_INTERRUPTED) == 0
        fleet.start()
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 6}


def test_five_rolling_deployments_within_one_long_step_cost_it_no_crash_and_at_most_one_restart(site: Site) -> None:
    with processes(site, 1) as fleet:
        (current,) = fleet.living
        ids = site.submit([("speck", {"pace": {"ms": 15_000}})])
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) == current),
            seconds=TIMEOUT_SECONDS,
            what=lambda: "the worker has not claimed the run",
        )
        for _ in range(5):
            (new,) = fleet.start(ready=False)
            fleet.signal(current, signal.SIGTERM)
            current = new
            time.sleep(1)
        assert site.all(ids, lambda run: not run.terminal), "the step was over before the last deployment"
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    (run,) = evidence.runs.values()
    assert (run.status, run.crashes, run.steps["only"].interruptions) == (Status.SUCCEEDED, 0, 0)
    assert not any(entry.tells_of_a_crash for entry in run.journal)
    assert run.steps["only"].attempts <= 2


# --- messages -------------------------------------------------------------------------------------


def test_every_message_delivered_three_times_is_one_execution(site: Site) -> None:
    with processes(site, 0) as fleet:
        site.purge(LANE)  # what is there still is about runs that have ended
        ids = site.submit(mixed(20, QUICK))
        site.repeat(LANE, messages=20, times=3)
        fleet.start(2)
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 20}
    # A lease may run out on a machine that stands still for seconds; nothing else makes a second claim.
    again = [run for run in evidence.runs.values() if run.epoch > 1]
    assert [run for run in again if EventType.STEP_INTERRUPTED not in {entry.type for entry in run.journal}] == []


def test_a_purged_queue_is_healed_by_the_sweeper_within_three_passes(site: Site) -> None:
    with processes(site, 0) as fleet:
        ids = site.submit(mixed(20, QUICK))
        site.purge(LANE)
        assert site.holds(LANE) == 0
        passes = 0
        while site.holds(LANE) < len(ids):
            site.sweep()
            passes += 1
            assert passes <= 3, f"after {passes} passes the lane holds {site.holds(LANE)} messages"
        fleet.start(2)
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 20}


def test_runs_whose_wakes_are_all_lost_are_brought_back_by_the_sweeper(site: Site) -> None:
    with processes(site, 2):
        ids = site.submit([("nap", QUICK)] * 20)

        def most_are_overdue() -> bool:
            site.purge(RESUME)
            now = site.services.clock.now()
            waiting = [run for run in site.rows(ids).values() if run.status is Status.WAITING]
            return sum(run.due_at is not None and run.due_at < now for run in waiting) > len(ids) // 2

        # Not all: the sweeper's own minute may come in between, and its rings be faster than the purge.
        until(most_are_overdue, seconds=TIMEOUT_SECONDS, what=lambda: "the runs are not overdue")
        # The first rings are lost as well: what was rung for once is not taken for looked after.
        for _ in range(2):
            site.sweep()
            site.purge(RESUME)
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 20}
    assert min(run.epoch for run in evidence.runs.values()) >= 2


# --- the emulator itself --------------------------------------------------------------------------


def test_the_emulator_restarted_under_load_loses_nothing(site: Site) -> None:
    with processes(site, 0) as fleet:
        ids = site.submit(mixed(RUNS, {"pace": {"ms": 800, "after_ms": 100}}))
        fleet.start(2)
        until(
            lambda: any(run.terminal for run in site.rows(ids).values()),
            seconds=TIMEOUT_SECONDS,
            what=lambda: "no run has ended",
        )
        assert not site.all(ids, lambda run: run.terminal), "the load was over before the restart"
        site.restart()
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": RUNS}
