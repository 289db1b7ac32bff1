"""The counters of queue slots against the rows that are queued (R6).

Both move while they are read, so only what can't have moved the wrong way is told. In an hour of acceptance that has
ended, rows only ever leave `queued`, and a slot is returned after its row has left: the counter read *before* the rows
is at least their number, or the bound does not hold. The counter read *after* them is above their number only by leaks,
by returns on their way and by envelopes without a row; hours ended so long ago that neither of the latter is left
(`repair_after_seconds`) show leaks alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.engine.admission.leaked_slots import closed


def find(deployment: Deployment) -> Iterator[Finding]:
    """An hour whose counter has fewer slots than rows, or more than anybody can still return."""
    settings, census = deployment.settings, deployment.census
    queued = census.queued()
    for class_name in settings.classes:
        surplus = deficit = 0
        for name, slot in {*queued, *census.held_before}:
            if name != class_name:
                continue
            rows = queued.get((name, slot), 0)
            if closed(slot.hour, deployment.now, hour_seconds=settings.slot_hour_seconds, after_seconds=0):
                deficit += max(0, rows - census.held_before.get((name, slot), 0))
            if census.complete and closed(
                slot.hour,
                deployment.now,
                hour_seconds=settings.slot_hour_seconds,
                after_seconds=settings.repair_after_seconds,
            ):
                surplus += max(0, census.held_after.get((name, slot), 0) - rows)
        if deficit:
            yield Finding(
                what=f"Class {class_name} has {deficit} queued runs more than its counter has slots.",
                why="So many runs too many can be queued; something else has written to the counter or the rows.",
                fix="It is over when those runs have begun. Find out who writes to the table beside its functions.",
            )
        if surplus:
            yield Finding(
                what=f"Class {class_name} counts {surplus} queue slots that no run holds.",
                why="A process died between a commit and the return of its slot: the bound is so much smaller, and"
                " callers are told 429 too early.",
                fix="The sweeper returns them within minutes; if this stays, see docs/operations.md#sweeper-silent.",
            )


CHECK = Check(name="slots", looks_at="the counters of queue slots against the queued rows", find=find)
