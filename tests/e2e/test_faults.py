"""Nothing lost, nothing done twice, on the real stack: processes killed and frozen, queues purged, the emulator gone.

The simulation finds the schedules nobody thinks of; this shows that the real processes, queues and
signals behave as the simulated ones do. Whatever was done to them, the runs are judged by the same
evidence in the end: rows, journals, the ledger of real executions, places, dead letters.
`make faults RUNS=1000 SEED=7` does the same with more.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import pytest

from functions.engine.journal import EventType
from functions.engine.message import RESUME
from functions.engine.run import Reason, Run, Status
from tests.support.evidence import Evidence, Execution, gather
from tests.support.fleet import Fleet
from tests.support.site import LANE, Site, until, worker_pid

pytestmark = [pytest.mark.emulator, pytest.mark.xdist_group("faults")]

RUNS = int(os.environ.get("FAULTS_RUNS", "100"))
SEED = int(os.environ.get("FAULTS_SEED", "1"))

PATIENCE_SECONDS = 120 + RUNS * 0.6
"""How long runs may take on a machine that does other things too. A healthy machine needs a tenth of it."""

CHAIN = ("one", "two", "three", "four")
DIAMOND = ("seed", "left", "right", "combine")


def _effect(*needs: str) -> dict[str, Any]:
    return {"task": "chaos.effect", "needs": list(needs), "input": "${input.pace}", "retry": {"max_attempts": 20}}


WORKFLOWS: Sequence[Mapping[str, Any]] = (
    {"name": "speck", "steps": {"only": _effect()}},
    {
        "name": "rhombus",
        "steps": {
            "seed": _effect(),
            "left": _effect("seed"),
            "right": _effect("seed"),
            "combine": _effect("left", "right"),
        },
    },
    {
        "name": "chain",
        "steps": {name: _effect(*needs) for name, needs in zip(CHAIN, [(), *zip(CHAIN)], strict=False)},
    },
    {
        "name": "nap",
        "steps": {"before": _effect(), "nap": {"wait": {"for": "6s"}, "needs": ["before"]}, "after": _effect("nap")},
    },
    {"name": "poison", "steps": {"drink": {"task": "chaos.crash"}}},
)

LEDGERED: Mapping[str, Sequence[str]] = {
    "speck": ("only",),
    "rhombus": DIAMOND,
    "chain": CHAIN,
    "nap": ("before", "after"),
    "poison": (),
}

QUICK = {"pace": {"ms": 20}}
SLOW = {"pace": {"ms": 100, "after_ms": 60}}
"""Time enough between an effect and its step's end to be killed there."""

STEADY = {"pace": {"ms": 600, "after_ms": 100}}
"""Slow enough that on a fast machine, too, a chain is met in the middle of each of its steps."""


@pytest.fixture(scope="module", autouse=True)
def workflows(site: Site) -> None:
    for document in WORKFLOWS:
        site.client.apply(document)


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chances that are the same in every session with the same `FAULTS_SEED`."""
    return random.Random(f"{SEED} {request.node.name}")


@contextmanager
def processes(site: Site, count: int, *, concurrency: int = 4) -> Iterator[Fleet]:
    """Worker processes instead of the functions; dead letters stay where they are."""
    site.switch(workers=False, dead_letters=False)
    with Fleet(site.state.parent, concurrency=concurrency) as fleet:
        fleet.start(count)
        yield fleet


def functions(site: Site) -> None:
    """The functions as deployed; dead letters stay where they are."""
    site.switch(workers=True, dead_letters=False)


def mixed(number: int, given: Any = SLOW) -> list[tuple[str, Any]]:
    """So many runs of all shapes, every second one a chain."""
    shapes = itertools.cycle(["chain", "rhombus", "chain", "speck"])
    return [(shape, given) for shape in itertools.islice(shapes, number)]


def judged(site: Site, ids: Sequence[str]) -> Evidence:
    """The evidence on runs that have ended. No promise was broken, and none that succeeded is a dead letter."""
    evidence = gather(site.records(ids), site.ledger)
    assert evidence.problems(LEDGERED) == []
    # A poisonous run's own message may be one: it was received twice for each crash. Its row carries the run.
    assert site.dead_letters() & {run.id for run in evidence.runs.values() if run.status is Status.SUCCEEDED} == set()
    return evidence


# --- kills ----------------------------------------------------------------------------------------


class Moment(Enum):
    """Where at a step's end a process is killed."""

    DONE = "its effect is in the ledger, its success is not recorded"
    RECORDED = "its success is recorded, and nothing that comes after it"


def stands_at(moment: Moment, name: str, run: Run, executed: Collection[Execution]) -> bool:
    """Whether a chain in somebody's hands is at this moment of that step."""
    state = run.steps.get(name)
    if run.status is not Status.RUNNING or state is None:
        return False
    if moment is Moment.DONE:
        return not state.settled and Execution(run.id, name, state.attempts) in executed
    later = [run.steps[step].settled for step in CHAIN[CHAIN.index(name) + 1 :] if step in run.steps]
    return state.settled and not any(later)


def strike(site: Site, chains: Sequence[str], kill: Callable[[int], bool], moment: Moment, name: str) -> bool:
    """Kill the process that holds a chain at this moment. False when no chain will come there any more."""
    while True:
        rows = site.rows(chains)
        executed = gather(rows, site.ledger).executed
        for run in rows.values():
            pid = worker_pid(run)
            if stands_at(moment, name, run, executed) and pid is not None and kill(pid):
                return True
        if len(rows) == len(chains) and all(_is_past(run, name) for run in rows.values()):
            return False
        site.sweep_in_turn()
        time.sleep(0.02)


def _is_past(run: Run, name: str) -> bool:
    state = run.steps.get(name)
    return run.terminal or (state is not None and state.settled)


def kill_at_every_boundary_and_at_random(
    site: Site, ids: Sequence[str], kill: Callable[[int], bool], dice: random.Random
) -> int:
    """Kills at both moments of each step of a chain, and now and then whoever holds a run; how many."""
    rows = site.rows(ids)
    chains = [run_id for run_id in ids if rows[run_id].workflow == "chain"]
    kills = 0
    for name, moment in itertools.product(CHAIN, Moment):
        kills += strike(site, chains, kill, moment, name)
        holders = {worker_pid(run) for run in site.rows(ids).values() if run.status is Status.RUNNING}
        if dice.random() < 0.5 and (pids := sorted(pid for pid in holders if pid is not None)):
            kills += kill(dice.choice(pids))
    return kills


def test_worker_processes_killed_at_every_step_boundary_and_at_random_lose_and_repeat_nothing(
    site: Site, dice: random.Random
) -> None:
    with processes(site, 0) as fleet:

        def kill(pid: int) -> bool:
            if not fleet.has(pid):
                return False
            worker = pid in fleet.living
            fleet.signal(pid, signal.SIGKILL)
            if worker:
                fleet.start(ready=False)
            return True

        ids = site.submit(mixed(RUNS, STEADY))
        fleet.start(4, ready=False)
        kills = kill_at_every_boundary_and_at_random(site, ids, kill, dice)
        site.ended(ids, seconds=PATIENCE_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": RUNS}
    assert kills >= len(CHAIN)
    assert evidence.of(EventType.STEP_INTERRUPTED) > 0


def test_worker_functions_killed_at_every_step_boundary_and_at_random_lose_and_repeat_nothing(
    site: Site, dice: random.Random
) -> None:
    def kill(pid: int) -> bool:
        try:
            if os.getpgid(pid) != site.stack.pid:
                return False
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    ids = site.submit(mixed(RUNS, STEADY))
    functions(site)
    kills = kill_at_every_boundary_and_at_random(site, ids, kill, dice)
    site.ended(ids, seconds=PATIENCE_SECONDS)
    evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": RUNS}
    assert kills >= len(CHAIN)
    assert evidence.of(EventType.STEP_INTERRUPTED) > 0


WITH_POISON = [*mixed(RUNS // 2, QUICK), ("poison", None), *mixed(RUNS - RUNS // 2, QUICK)]


def test_one_poisonous_run_among_innocent_ones_fails_alone(site: Site) -> None:
    with processes(site, 0) as fleet:
        ids = site.submit(WITH_POISON)

        def replace_the_dead() -> None:
            fleet.start(2 - len(fleet.living), ready=False)

        site.ended(ids, seconds=PATIENCE_SECONDS, meanwhile=replace_the_dead)
        only_the_poisonous_one_failed(judged(site, ids))


def test_one_poisonous_run_among_innocent_ones_in_functions_fails_alone(site: Site) -> None:
    ids = site.submit(WITH_POISON)
    functions(site)
    site.ended(ids, seconds=PATIENCE_SECONDS)
    only_the_poisonous_one_failed(judged(site, ids))


def only_the_poisonous_one_failed(evidence: Evidence) -> None:
    assert evidence.statuses() == {"succeeded": RUNS, "failed": 1}
    (poison,) = (run for run in evidence.runs.values() if run.workflow == "poison")
    assert (poison.status, poison.reason) == (Status.FAILED, Reason.ATTEMPTS_EXHAUSTED)


# --- stops ----------------------------------------------------------------------------------------


def test_a_worker_stopped_past_its_lease_and_continued_writes_nothing_more_and_goes_on(site: Site) -> None:
    with processes(site, 0, concurrency=10) as fleet:
        ids = site.submit([("speck", {"pace": {"ms": 3000}})] * 4)
        (frozen,) = fleet.start()
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) == frozen),
            seconds=PATIENCE_SECONDS,
            what=lambda: "the worker has not claimed all runs",
        )
        fleet.signal(frozen, signal.SIGSTOP)
        (other,) = fleet.start()
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) != frozen),
            seconds=PATIENCE_SECONDS,
            what=lambda: "nobody has taken over from the frozen worker",
        )
        fleet.signal(frozen, signal.SIGCONT)
        site.ended(ids, seconds=PATIENCE_SECONDS)
        fleet.signal(other, signal.SIGKILL)
        later = site.submit([("speck", QUICK)])
        site.ended(later, seconds=PATIENCE_SECONDS)
        assert {worker_pid(run) for run in site.rows(later).values()} == {frozen}
        evidence = judged(site, [*ids, *later])
    assert evidence.statuses() == {"succeeded": 5}
    assert min(evidence.runs[run_id].epoch for run_id in ids) >= 2


def test_a_worker_told_to_stop_hands_its_runs_over_and_interrupts_nothing(site: Site) -> None:
    with processes(site, 0, concurrency=10) as fleet:
        ids = site.submit(mixed(6, {"pace": {"ms": 1000}}))
        (old,) = fleet.start()
        until(
            lambda: site.all(ids, lambda run: worker_pid(run) == old),
            seconds=PATIENCE_SECONDS,
            what=lambda: "the worker has not claimed all runs",
        )
        fleet.signal(old, signal.SIGTERM)
        assert fleet.wait(old) == 0
        left = [run for run in site.rows(ids).values() if not run.terminal]
        assert left, "there was nothing to hand over"
        assert {run.status for run in left} == {Status.WAITING}
        fleet.start()
        site.ended(ids, seconds=PATIENCE_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 6}
    assert evidence.of(EventType.STEP_INTERRUPTED) == 0


# --- messages -------------------------------------------------------------------------------------


def test_every_message_delivered_three_times_is_one_execution(site: Site) -> None:
    with processes(site, 0) as fleet:
        site.purge(LANE)  # what is there still is about runs that have ended
        ids = site.submit(mixed(20, QUICK))
        site.repeat(LANE, messages=20, times=3)
        fleet.start(2)
        site.ended(ids, seconds=PATIENCE_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 20}
    assert {run.epoch for run in evidence.runs.values()} == {1}


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
        site.ended(ids, seconds=PATIENCE_SECONDS)
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
        until(most_are_overdue, seconds=PATIENCE_SECONDS, what=lambda: "the runs are not overdue")
        # The first rings are lost as well: what was rung for once is not taken for looked after.
        for _ in range(2):
            site.sweep()
            site.purge(RESUME)
        site.ended(ids, seconds=PATIENCE_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": 20}
    assert min(run.epoch for run in evidence.runs.values()) >= 2


# --- the emulator itself --------------------------------------------------------------------------


def test_the_emulator_restarted_under_load_loses_nothing(site: Site) -> None:
    with processes(site, 0) as fleet:
        ids = site.submit(mixed(RUNS // 2))
        fleet.start(2)
        functions(site)  # beside the processes; these die with the emulator
        until(
            lambda: any(run.terminal for run in site.rows(ids).values()),
            seconds=PATIENCE_SECONDS,
            what=lambda: "no run has ended",
        )
        assert not site.all(ids, lambda run: run.terminal), "the load was over before the restart"
        site.restart()
        site.ended(ids, seconds=PATIENCE_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": RUNS // 2}


# --- afterwards -----------------------------------------------------------------------------------


def test_after_all_that_the_sweeper_has_given_every_place_back(site: Site) -> None:
    until(
        lambda: (site.sweep(), site.places() == 0)[1],
        seconds=PATIENCE_SECONDS,
        what=lambda: f"{site.places()} places are taken, and nothing is queued",
    )
