"""How leaked slots are told from live ones (R6); `fanfold.service.sweeper.slot_repair` counts and subtracts.

A slot leaks when a process dies between a commit and the return of its slot, or between a
reservation and its send. The rule, for an hour of acceptance that ended long ago:

1. Count the hour's queued rows. Rows of a closed hour only ever leave `queued`, so the count is at
   least what is queued when it ends.
2. *Then* read the hour's counter. It holds a slot for each row queued now, for each that left and
   whose return is still on its way, and the leaks. What it holds above the count is the surplus.
3. The same again at least `again` later. If the counter stands as it stood, no return arrived in
   between; every return that was on its way at 2 is over by now, one way or the other. So the
   whole first surplus has leaked, and is subtracted on condition that the counter still stands so.

The counter of a closed hour never grows, so that "as it stood" can't mean "moved and moved back".
The second count is not needed for that proof: it is there for an index that lagged at the first.
`tests/unit/service/sweeper/test_slot_protocol.py` tries every order of events.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fanfold.engine.record.run import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A surplus seen once: at `at`, `standing` slots were counted where `standing - surplus` rows were queued."""

    class_name: str
    slot: Slot
    standing: int
    surplus: int
    at: datetime


def leaked(first: Finding | None, second: Finding, *, again: timedelta) -> int:
    """How many slots are leaked for certain, by two findings of one hour; 0 as long as that is open."""
    if first is None or confirmed(first, second) is not first or second.at - first.at < again:
        return 0
    return first.surplus


def confirmed(first: Finding, second: Finding) -> Finding:
    """The finding to wait on: the first as long as the second agrees with it, else the second."""
    # Less surplus with the same counter means more rows: the index lagged the first time.
    agrees = second.standing == first.standing and second.surplus >= first.surplus
    return first if agrees else second


def closed(hour: int, now: datetime, *, hour_seconds: int, after_seconds: float) -> bool:
    """Whether an hour of acceptance ended long enough ago to be looked at."""
    return (hour + 1) * hour_seconds + after_seconds <= now.timestamp()
