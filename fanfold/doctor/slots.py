"""Compares the counters of queue slots with the queued records (R6).

Both change while they are read, so the check reports only differences that can't come from that. In a past hour of
acceptance records only leave `queued`, and a slot is released after its record has left. So the counter read *before*
the records is at least their number, or the bound does not hold. The counter read *after* them is larger only by leaks,
by releases on their way, and by envelopes without a record. Hours that ended long ago (`repair_after_seconds`) have no
more releases and envelopes, so they show leaks alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.engine.admission.leaked_slots import closed


def find(deployment: Deployment) -> Iterator[Finding]:
    """An hour whose counter has fewer slots than records, or more than anybody can still return."""
    settings, census = deployment.settings, deployment.census
    queued = census.queued()
    for class_name in settings.classes:
        surplus = deficit = 0
        for name, slot in {*queued, *census.held_before}:
            if name != class_name:
                continue
            records = queued.get((name, slot), 0)
            if closed(slot.hour, deployment.now, hour_seconds=settings.slot_hour_seconds, after_seconds=0):
                deficit += max(0, records - census.held_before.get((name, slot), 0))
            if census.complete and closed(
                slot.hour,
                deployment.now,
                hour_seconds=settings.slot_hour_seconds,
                after_seconds=settings.repair_after_seconds,
            ):
                surplus += max(0, census.held_after.get((name, slot), 0) - records)
        if deficit:
            yield Finding(
                what=f"Class {class_name} has {deficit} queued runs more than its counter has slots.",
                why="So many runs too many can be queued; something else has written to the counter or the records.",
                fix="It is over when those runs have begun. Find out who writes to the table beside its functions.",
            )
        if surplus:
            yield Finding(
                what=f"Class {class_name} counts {surplus} queue slots that no run holds.",
                why="A process died between a commit and the return of its slot: the bound is so much smaller, and"
                " callers are told 429 too early.",
                fix="The sweeper returns them within minutes; if this stays, see docs/operations.md#sweeper-silent.",
            )


CHECK = Check(name="slots", looks_at="the counters of queue slots against the queued records", find=find)
