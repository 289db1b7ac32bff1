"""The code, broken on purpose: each mutant undoes one rule, and the simulation must notice.

A mutant is patches on the real modules for as long as its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.simulation.mutants.deployments import (
    a_shard_admits_before_it_is_made,
    leases_are_as_long_as_ones_own,
)
from tests.simulation.mutants.holding import (
    a_bug_in_hiding_ends_the_batch,
    a_clock_that_is_off_is_believed,
    a_death_counts_as_a_bug,
    a_halted_holder_goes_on,
    a_lost_answer_is_a_lost_run,
    a_stop_counts_as_a_crash,
    a_stop_forgets_the_crashes,
    an_attempt_gives_up_in_an_outage,
    an_unanswered_put_is_taken_for_done,
    claims_under_a_valid_lease,
    crashes_are_not_counted,
    interrupted_means_retried,
    joins_do_not_wait,
    receipts_count_as_crashes,
    starts_before_the_commit,
    the_undecidable_goes_round,
    what_may_kill_is_decided_before_it_is_claimed,
    writes_without_a_condition,
)
from tests.simulation.mutants.maps import (
    a_map_is_looked_at_once,
    batches_are_recorded_over,
    void_batches_are_worked_on,
)
from tests.simulation.mutants.nets import (
    an_envelope_without_a_row_is_dropped,
    dead_leases_are_nobodys_business,
    dead_letters_are_dropped,
    rings_for_nobody,
)
from tests.simulation.mutants.operators import (
    a_cancellation_is_not_heeded,
    a_pause_is_not_heeded,
    a_redrive_begins_at_the_beginning,
    a_resume_forgets_the_dead,
    a_runnable_run_waits_for_its_timers,
    a_signal_stays_when_it_is_taken,
    an_unanswered_move_is_made_again,
    keyed_moves_are_forgotten,
    waits_end_early,
)
from tests.simulation.mutants.slots import (
    a_batch_mixes_up_its_answers,
    nobody_repairs_slots,
    repairs_slots_on_one_finding,
    returns_a_slot_again_when_unanswered,
    returns_a_slot_twice,
    returns_the_slot_of_an_unanswered_send,
)

Mutant = Callable[[], AbstractContextManager[None]]

__all__ = [
    "Mutant",
    "a_batch_mixes_up_its_answers",
    "a_bug_in_hiding_ends_the_batch",
    "a_cancellation_is_not_heeded",
    "a_clock_that_is_off_is_believed",
    "a_death_counts_as_a_bug",
    "a_halted_holder_goes_on",
    "a_lost_answer_is_a_lost_run",
    "a_map_is_looked_at_once",
    "a_pause_is_not_heeded",
    "a_redrive_begins_at_the_beginning",
    "a_resume_forgets_the_dead",
    "a_runnable_run_waits_for_its_timers",
    "a_shard_admits_before_it_is_made",
    "a_signal_stays_when_it_is_taken",
    "a_stop_counts_as_a_crash",
    "a_stop_forgets_the_crashes",
    "an_attempt_gives_up_in_an_outage",
    "an_envelope_without_a_row_is_dropped",
    "an_unanswered_move_is_made_again",
    "an_unanswered_put_is_taken_for_done",
    "batches_are_recorded_over",
    "claims_under_a_valid_lease",
    "crashes_are_not_counted",
    "dead_leases_are_nobodys_business",
    "dead_letters_are_dropped",
    "interrupted_means_retried",
    "joins_do_not_wait",
    "keyed_moves_are_forgotten",
    "leases_are_as_long_as_ones_own",
    "nobody_repairs_slots",
    "receipts_count_as_crashes",
    "repairs_slots_on_one_finding",
    "returns_a_slot_again_when_unanswered",
    "returns_a_slot_twice",
    "returns_the_slot_of_an_unanswered_send",
    "rings_for_nobody",
    "starts_before_the_commit",
    "the_undecidable_goes_round",
    "void_batches_are_worked_on",
    "waits_end_early",
    "what_may_kill_is_decided_before_it_is_claimed",
    "writes_without_a_condition",
]
