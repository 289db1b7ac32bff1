"""Two thousand schedules, the same every time; `make simulate` plays others."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.deployment import Deployment
from tests.simulation.fate import Fate
from tests.simulation.schedule import play, play_out
from tests.simulation.shrink import shrink

SCHEDULES = 2_000
PER_TEST = 50


@pytest.mark.parametrize("first", range(1, SCHEDULES + 1, PER_TEST))
def test_every_promise_is_kept_in_schedules_from(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        failure = play(seed).failure
        if failure is not None:
            pytest.fail(shrink(failure).report())


FOUND = {
    301179: "a place's return outlived its invocation, which ran out of time while the ended run waited for it",
    304533: "the audit took the second ring of a map that was due already for a foreign process's write",
    50023232: "the audit missed the map of a batch whose run was cancelled and redriven after its look",
    50056674: "the audit took a holder's write that changed nothing but a step for a stranger's look",
    50074941: "as 50023232",
    50088611: "as 50023232",
    200027888: "the audit did not know of a run whose first claim makes its row and has no time for it",
    200024846: "the audit took steps that were cancelled, when a run ended by a hand-over of nothing, for progress",
}
"""Seeds that once broke a promise, and what they found: of the code (which has a test of its own) or of the audit."""


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    assert play(seed).failure is None


@pytest.mark.parametrize("seed", [3, 11, 27])
def test_a_schedule_is_nothing_but_its_seed(seed: int) -> None:
    def course() -> list[str]:
        fate = Fate(seed)
        return [str(line) for line in play_out(fate, Deployment.by_chance(fate))[1]]

    assert course() == course()


def test_a_failure_shrinks_to_what_it_needs() -> None:
    with mutants.rings_for_nobody():
        failure = next(failure for seed in range(1, 100) if (failure := play(seed).failure) is not None)
        small = shrink(failure)
    assert small.what == failure.what
    assert len(small.struck) <= len(failure.struck)
    # Its trace may be longer: a process that no longer dies has more to tell.
    assert f"seed {failure.seed}: {failure.what}" in small.report()
