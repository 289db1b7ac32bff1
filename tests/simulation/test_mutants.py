"""The simulation can fail: each rule undone on purpose is noticed, within a few hundred schedules."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.schedule import play

NOTICED_FROM = {
    mutants.writes_without_a_condition: 2,
    mutants.claims_under_a_valid_lease: 7,
    mutants.starts_before_the_commit: 1,
    mutants.returns_a_slot_again_when_unanswered: 66,
    mutants.returns_a_slot_twice: 1,
    mutants.returns_the_slot_of_an_unanswered_send: 121,
    mutants.rings_for_nobody: 1,
    mutants.dead_leases_are_nobodys_business: 3,
    mutants.an_envelope_without_a_row_is_dropped: 7,
    mutants.interrupted_means_retried: 5,
    mutants.crashes_are_not_counted: 110,
    mutants.an_attempt_gives_up_in_an_outage: 9,
    mutants.a_lost_answer_is_a_lost_run: 7,
    mutants.an_unanswered_put_is_taken_for_done: 5,
    mutants.a_halted_holder_goes_on: 99,
    mutants.joins_do_not_wait: 2,
    mutants.dead_letters_are_dropped: 10,
    mutants.a_signal_stays_when_it_is_taken: 17,
    mutants.a_pause_is_not_heeded: 90,
    mutants.a_cancellation_is_not_heeded: 16,
    mutants.a_runnable_run_waits_for_its_timers: 1,
    mutants.a_redrive_begins_at_the_beginning: 4,
    mutants.keyed_moves_are_forgotten: 7,
    mutants.waits_end_early: 1,
    mutants.batches_are_recorded_over: 455,
    mutants.a_batch_mixes_up_its_answers: 381,
    mutants.nobody_repairs_slots: 9,
    mutants.a_map_is_looked_at_once: 5,
    mutants.a_stop_counts_as_a_crash: 205,
    mutants.a_stop_forgets_the_crashes: 1_800,
    mutants.what_may_kill_is_decided_before_it_is_claimed: 20,
    mutants.the_undecidable_goes_round: 320,
    mutants.a_death_counts_as_a_bug: 770,
    mutants.a_clock_that_is_off_is_believed: 440,
    mutants.a_bug_in_hiding_ends_the_batch: 5_200,
    mutants.receipts_count_as_crashes: 50,
    mutants.leases_are_as_long_as_ones_own: 150,
    mutants.a_shard_admits_before_it_is_made: 355,
}
"""Each mutant, and a seed shortly before the first that noticed it: only to be quick about it."""

WITHIN = 600


@pytest.mark.parametrize("mutant", NOTICED_FROM, ids=lambda mutant: mutant.__name__)
def test_the_simulation_notices(mutant: mutants.Mutant) -> None:
    with mutant():
        first = NOTICED_FROM[mutant]
        seeds = (seed for seed in range(first, first + WITHIN) if play(seed).failure is not None)
        noticed = next(seeds, None)
    assert noticed is not None
    assert play(noticed).failure is None, "the schedule fails without the mutant too"
