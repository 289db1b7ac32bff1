"""The rules one by one: every placement of a few faults on a short course (random schedules miss rare orders)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fanfold.engine.record.operations import Operation
from tests.simulation import mutants
from tests.simulation.deployment import Deployment
from tests.simulation.explore import Blow, Site, explore, one_run
from tests.simulation.fate import Fault
from tests.simulation.operators import Order

MARKER = "${input.marker}"
CHAIN = {
    "steps": {
        "a": {"task": "sim.work", "input": {"ms": 8_000, "marker": MARKER}, "timeout": "60s"},
        "b": {"task": "sim.work", "needs": ["a"], "input": {"ms": 0, "marker": MARKER}},
    },
    "output": {"marker": MARKER},
}
"""Renews its lease once, then has a second step: a claim, a renewal, a start, an end."""

RETRIED = {
    "steps": {
        "a": {
            "task": "sim.work",
            "input": {"ms": 0, "fail": 1, "after": 30, "marker": MARKER},
            "retry": {"max_attempts": 2},
        }
    },
    "output": {"marker": MARKER},
}
"""Suspends, and is woken."""

SINGLE = {
    "steps": {"a": {"task": "sim.work", "input": {"ms": 0, "marker": MARKER}}},
    "output": {"marker": MARKER},
}


def _of_workers(*calls: str) -> Callable[[Site], bool]:
    return lambda site: site.name.startswith(("lambda", "worker", "child")) and any(call in site.name for call in calls)


def _all_kept(deployment: Deployment, *blows: Blow, depth: int, where: Callable[[Site], bool], least: int) -> None:
    played = 0
    for failure in explore(deployment, blows, depth=depth, where=where):
        played += 1
        if failure is not None:
            pytest.fail(failure.report())
    assert played >= least, "the course has fewer calls than this test is about"


@pytest.mark.parametrize("first", [Fault.LOST, Fault.DONE, Fault.LATE, Fault.THROTTLED])
def test_one_writer_whatever_becomes_of_three_of_its_calls(first: Fault) -> None:
    """R3. The first of the three is the parameter's; the others are any."""
    every = (Blow(Fault.LOST), Blow(Fault.DONE), Blow(Fault.LATE, 0.1), Blow(Fault.THROTTLED))
    mine = next(blow for blow in every if blow.fault is first)
    deployment = one_run(CHAIN, lease_seconds=15)
    played = 0
    for failure in explore(deployment, every, depth=3, where=_of_workers(".runs."), first=(mine,)):
        played += 1
        if failure is not None:
            pytest.fail(failure.report())
    assert played >= 200


def test_one_writer_beside_zombies_and_successors() -> None:
    """R3, R4. A holder that freezes, dies, is slow, or whose write comes late meets the one that follows it."""
    blows = (
        Blow(Fault.DONE),
        Blow(Fault.LATE, 0.4),
        Blow(Fault.FREEZE_AFTER, 0.3),
        Blow(Fault.DIE_AFTER),
        Blow(Fault.SLOW, 0.9),
    )
    _all_kept(one_run(CHAIN, lease_seconds=15), *blows, depth=2, where=_of_workers(".runs."), least=200)


def test_messages_are_only_hints() -> None:
    """R4, R5, R14. Any two of a run's messages may be lost, doubled, late; its worker may die at any call."""
    blows = (
        Blow(Fault.LOST),
        Blow(Fault.DONE),
        Blow(Fault.TWICE),
        Blow(Fault.STRAY, 0.3),
        Blow(Fault.DIE_BEFORE),
        Blow(Fault.DIE_AFTER),
    )
    where = _of_workers("queue.send", "queue.hide", "queue.delete", "runs.put")
    _all_kept(one_run(RETRIED, lease_seconds=15), *blows, depth=2, where=where, least=400)


@pytest.mark.parametrize("processes", [False, True])
def test_any_one_thing_may_go_wrong_at_any_call(processes: bool) -> None:
    fleet = {"lambdas": not processes, "processes": int(processes)}
    deployment = one_run(RETRIED, lease_seconds=15, **fleet)
    _all_kept(deployment, *(Blow(fault) for fault in Fault), depth=1, where=lambda _: True, least=100)


def test_a_slot_is_returned_once_and_never_too_early() -> None:
    """R6. Two clients with one key at a bound of one, and two things go wrong with what is about places."""
    blows = (
        Blow(Fault.LOST),
        Blow(Fault.DONE),
        Blow(Fault.LATE, 0.5),
        Blow(Fault.THROTTLED),
        Blow(Fault.DIE_BEFORE),
        Blow(Fault.DIE_AFTER),
    )
    alone = one_run(SINGLE, lease_seconds=15, bound=1)
    deployment = replace(alone, wishes=[*alone.wishes, *alone.wishes])

    def where(site: Site) -> bool:
        about = any(call in site.name for call in ("slots.", "queue.send", "runs.put"))
        return about and not site.name.startswith(("sweeper", "deadletter"))

    _all_kept(deployment, *blows, depth=2, where=where, least=400)


def test_a_holder_whose_renewal_is_slow_stops_for_good() -> None:
    """Seed 10753 found it: the attempts stopped at the lease's end, the late answer renewed it, and nothing ran."""
    long = {**CHAIN, "steps": {"a": {"task": "sim.work", "input": {"ms": 30_000, "marker": MARKER}, "timeout": "60s"}}}
    deployment = one_run(long, lease_seconds=15)
    slow, puts = Blow(Fault.SLOW, 0.9), _of_workers("runs.put")
    _all_kept(deployment, slow, depth=1, where=puts, least=5)
    with mutants.a_halted_holder_goes_on():
        assert any(explore(deployment, (slow,), depth=1, where=puts))


GATED = {
    "steps": {
        **CHAIN["steps"],  # type: ignore[dict-item]  # both are documents
        "g": {"wait": {"signal": "go", "timeout": "40s"}, "on_failure": "continue"},
        "c": {"task": "sim.work", "needs": ["a", "g"], "join": "settled", "input": {"ms": 0, "marker": MARKER}},
    },
    "output": {"marker": MARKER},
}
"""A chain beside a gate: its holder has an operator to listen to, and its own writes to make."""

AT_ONCE = {
    Operation.CANCEL: (Operation.CANCEL,),
    Operation.PAUSE: (Operation.PAUSE, Operation.RESUME),
    Operation.SIGNAL: (Operation.SIGNAL,),
}


@pytest.mark.parametrize("at", [1.0, 6.1])
@pytest.mark.parametrize("kind", AT_ONCE)
def test_one_writer_beside_an_operator(kind: Operation, at: float) -> None:
    """R3, R10. An operator's write lands among a holder's, any two of which get no answer."""
    moves = [Order(at=at + 2 * n, kind=one, number=n, keyed=True) for n, one in enumerate(AT_ONCE[kind])]
    deployment = replace(one_run(GATED, lease_seconds=15), orders=moves)
    blows = (Blow(Fault.LOST, 0.3), Blow(Fault.DONE, 0.3), Blow(Fault.LATE, 0.1))
    _all_kept(deployment, *blows, depth=2, where=_of_workers("runs.put"), least=20)


@pytest.mark.parametrize("kind", AT_ONCE)
def test_an_operators_own_write_may_get_no_answer(kind: Operation) -> None:
    """R10. The move is made once, and what follows from it follows, whichever of the API's calls fails."""
    moves = [Order(at=4.0 + 2 * n, kind=one, number=n, keyed=True) for n, one in enumerate(AT_ONCE[kind])]
    deployment = replace(one_run(GATED, lease_seconds=15), orders=moves)
    blows = (Blow(Fault.LOST, 0.3), Blow(Fault.DONE, 0.3), Blow(Fault.LATE, 0.1), Blow(Fault.DIE_AFTER))

    def where(site: Site) -> bool:
        return site.name.startswith("api") and any(call in site.name for call in ("runs.", "queue.send"))

    _all_kept(deployment, *blows, depth=2, where=where, least=20)


def test_an_unkeyed_signal_is_received_once_though_its_write_gets_no_answer() -> None:
    """R10. The API knows its own write in the record that stands."""
    moves = [Order(at=4.0, kind=Operation.SIGNAL, number=1)]
    deployment = replace(one_run(GATED, lease_seconds=15), orders=moves)
    blows = (Blow(Fault.DONE, 0.1),)

    def where(site: Site) -> bool:
        return site.name.startswith("api") and "runs.put" in site.name

    _all_kept(deployment, *blows, depth=1, where=where, least=2)
    # Its holder seals the entry away before the API looks.
    sealing = replace(deployment, encoded=True, orders=[replace(moves[0], at=1.2)])
    _all_kept(sealing, Blow(Fault.DONE, 0.9), depth=1, where=where, least=2)
    with mutants.an_unanswered_move_is_made_again():
        assert any(explore(deployment, blows, depth=1, where=where))


def test_a_holder_that_dies_in_a_pause_is_missed_at_the_resume() -> None:
    """R7, R10. What it had begun is interrupted then."""
    moves = [
        Order(at=4.0, kind=Operation.PAUSE, number=1),
        Order(at=60.0, kind=Operation.RESUME, number=2),
    ]
    deployment = replace(one_run(CHAIN, lease_seconds=15), orders=moves)
    blows, puts = (Blow(Fault.DIE_BEFORE), Blow(Fault.DIE_AFTER)), _of_workers("runs.put")
    _all_kept(deployment, *blows, depth=1, where=puts, least=4)
    with mutants.a_resume_forgets_the_dead():
        assert any(explore(deployment, blows, depth=1, where=puts))


@pytest.mark.parametrize("kind", [Operation.SIGNAL, Operation.PAUSE])
def test_two_operators_who_do_the_same_at_once_are_told_apart(kind: Operation) -> None:
    """R3, R10. Who gets no answer does not take the other's move for its own, whoever has written since."""
    twins = [Order(at=4.0, kind=kind, number=1)] * 2
    later = Order(at=4.1, kind=Operation.SIGNAL, number=2, name="ok", keyed=True)
    deployment = replace(one_run(GATED, lease_seconds=15), orders=[*twins, later])
    blows = (Blow(Fault.LOST, 0.3), Blow(Fault.DONE, 0.3), Blow(Fault.LATE, 0.1))

    def where(site: Site) -> bool:
        return site.name.startswith("api") and "runs.put" in site.name

    for encoded in (False, True):
        _all_kept(replace(deployment, encoded=encoded), *blows, depth=2, where=where, least=20)


MAPPED = {
    "steps": {
        "m": {
            "map": {
                "over": [f"i{number}" for number in range(9)],
                "task": "sim.work",
                "input": {"ms": 8_000, "marker": MARKER, "item": "${item}"},
                "max_concurrency": 3,
                "via": "stepfunctions",
            },
            "timeout": "60s",
        }
    },
    "output": {"marker": MARKER},
}
"""Three batches elsewhere, one after the other."""


def test_nobody_works_on_a_batch_that_nobody_waits_for() -> None:
    """R9. Its run was cancelled, and the execution that goes on all the same was not stopped."""
    mapped = one_run(MAPPED, lease_seconds=15, machine=True)
    deployment = replace(mapped, orders=[Order(at=6.0, kind=Operation.CANCEL, number=1)])
    blows = (Blow(Fault.LOST), Blow(Fault.DIE_BEFORE))

    def where(site: Site) -> bool:
        return "fan_out.stop" in site.name

    _all_kept(deployment, *blows, depth=1, where=where, least=3)
    with mutants.void_batches_are_worked_on():
        assert any(explore(deployment, blows, depth=1, where=where))


def test_a_slot_on_its_way_back_is_not_repaired() -> None:
    """R6. The sweeper counts between a run's claim and the return of its place, while another is queued."""
    first = one_run(SINGLE, lease_seconds=15, bound=2, short_hours=True)
    wishes = [replace(first.wishes[0], key=f"k{delay}", delay=delay) for delay in (413.0, 800.0)]
    deployment = replace(first, wishes=wishes)
    slow, returns = Blow(Fault.SLOW, 0.9), _of_workers("slots.give_back")
    _all_kept(deployment, slow, depth=1, where=returns, least=2)
    with mutants.repairs_slots_on_one_finding():
        assert any(explore(deployment, (slow,), depth=1, where=returns))
