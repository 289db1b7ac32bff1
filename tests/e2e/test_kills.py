"""SIGKILL to whoever holds runs, and a run that kills whoever holds it: nothing is lost, nothing done twice.

Every process dies at the moments that matter: its effect done and not recorded, its success recorded and nothing
after it, for each step of a chain; and now and then at random.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum

import pytest

from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Reason, Run, Status
from tests.support.evidence import Execution, gather
from tests.support.load import (
    CHAIN,
    OTHER_CLASS,
    POISONS,
    QUICK,
    RUNS,
    SEED,
    TIMEOUT_SECONDS,
    elsewhere,
    functions,
    judged,
    mixed,
    processes,
)
from tests.support.site import Site, worker_pid

pytestmark = [pytest.mark.emulator]

STEADY = {"pace": {"ms": 400, "after_ms": 300}}
"""Time enough to be met, and killed, on both sides of each step's end."""

INNOCENT = 100
"""How many runs stand beside the poisonous ones, for functions and for processes each."""

Kill = Callable[[int], bool]
"""Kills a process; says whether it was one that may be killed."""


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chances that are the same in every session with the same `FAULTS_SEED`."""
    return random.Random(f"{SEED} {request.node.name}")


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
    return state.settled and not _any_later(name, run)


def strike(site: Site, chains: Sequence[str], kill: Kill, moment: Moment, name: str) -> bool:
    """Kill the process that holds a chain at this moment. False when no chain will come there any more."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        rows = site.rows(chains)
        executed = gather(rows, site.ledger).executed
        for run in rows.values():
            pid = worker_pid(run)
            if stands_at(moment, name, run, executed) and pid is not None and kill(pid):
                return True
        if len(rows) == len(chains) and all(_is_past(moment, name, run) for run in rows.values()):
            return False
        site.sweep_in_turn()
        time.sleep(0.02)
    states = [(run.id, str(run.status), run.epoch, list(run.steps)) for run in site.rows(chains).values()]
    raise AssertionError(f"nobody was met at {name} ({moment.value}): {states}; logs in {site.state}")


def _is_past(moment: Moment, name: str, run: Run) -> bool:
    state = run.steps.get(name)
    done = state is not None and state.settled
    return run.terminal or (done and moment is Moment.DONE) or _any_later(name, run)


def _any_later(name: str, run: Run) -> bool:
    return any(run.steps[step].settled for step in CHAIN[CHAIN.index(name) + 1 :] if step in run.steps)


def kill_at_every_boundary_and_at_random(site: Site, ids: list[str], kill: Kill, dice: random.Random) -> None:
    """A kill at both moments of each step of a chain, and now and then of whoever holds a run.

    Where no chain is left to be met, more are submitted, and their ids added.
    """
    rows = site.rows(ids)
    chains = [run_id for run_id in ids if rows[run_id].workflow == "chain"]
    for name, moment in itertools.product(CHAIN, Moment):
        if (name, moment) == (CHAIN[-1], Moment.RECORDED):
            continue  # the last step's success is the run's, in one write: nothing lies between
        while not strike(site, chains, kill, moment, name):
            more = site.submit([("chain", STEADY)] * 2)
            chains += more
            ids += more
        holders = {worker_pid(run) for run in site.rows(ids).values() if run.status is Status.RUNNING}
        if dice.random() < 0.5 and (pids := sorted(pid for pid in holders if pid is not None)):
            kill(dice.choice(pids))


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
        fleet.start(3, ready=False)
        kill_at_every_boundary_and_at_random(site, ids, kill, dice)
        site.ended(ids, seconds=TIMEOUT_SECONDS)
        evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": len(ids)}
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
    kill_at_every_boundary_and_at_random(site, ids, kill, dice)
    site.ended(ids, seconds=TIMEOUT_SECONDS)
    evidence = judged(site, ids)
    assert evidence.statuses() == {"succeeded": len(ids)}
    assert evidence.of(EventType.STEP_INTERRUPTED) > 0


def test_poisonous_runs_among_innocent_ones_fail_alone(site: Site) -> None:
    """One kills its worker in a step, one by the memory and one by the time that a decision on it takes."""
    third = INNOCENT // 3
    runs = [run for poison in POISONS for run in (*mixed(third, QUICK), (poison, None))]
    runs += mixed(INNOCENT - len(POISONS) * third, QUICK)
    with processes(site, 0, class_name=OTHER_CLASS) as fleet:
        for_functions, for_processes = site.submit(runs), site.submit(elsewhere(runs))
        functions(site)

        def replace_the_dead() -> None:
            fleet.start(2 - len(fleet.living), ready=False)

        site.ended([*for_functions, *for_processes], seconds=TIMEOUT_SECONDS, meanwhile=replace_the_dead)
        for ids in (for_functions, for_processes):
            evidence = judged(site, ids)
            assert evidence.statuses() == {"succeeded": INNOCENT, "failed": len(POISONS)}
            poisons = [run for run in evidence.runs.values() if run.workflow.startswith(POISONS)]
            assert {run.reason for run in poisons} == {Reason.ATTEMPTS_EXHAUSTED}
            assert {max(run.crashes, *(s.interruptions for s in run.steps.values()), 0) for run in poisons} == {5}
            # Whom a death took along was interrupted, and nothing else: no attempt of theirs failed.
            innocent = [run for run in evidence.runs.values() if not run.workflow.startswith(POISONS)]
            assert {state.failures for run in innocent for state in run.steps.values()} == {0}
