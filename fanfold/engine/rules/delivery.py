"""When a run must be looked at, and what a message about it is good for (R2, R4, R5, R7).

Once a run's row exists, messages are hints. `on_envelope` and `on_wake` say what the hint is worth,
given the row as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fanfold.engine.record.messages import Envelope, Message, Wake
from fanfold.engine.record.run import Run, Status
from fanfold.engine.record.timers import runnable
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.kinds.map_step import open_distributed_maps
from fanfold.engine.rules.lease import abandoned, held

SOON = timedelta(seconds=15)
"""A wake that comes this much too early is handed back instead of deleted: clocks differ (R4)."""

LOOKING = timedelta(seconds=2)
"""How long a map's ring is put off while the run's holder looks at that map."""

SUSPECT_RECEIVES = 3
"""A message received this often goes to the `resume` queue unread: its neighbours may be innocent (R7)."""


MOST_HAND_BACKS = 8
"""From so many receipts on a message about a run in good hands is dropped: a tenth would make it a dead letter (R13),
and should the holder die, other messages and the sweeper carry the run."""

LATE = timedelta(minutes=1)
"""A waiting run that is due for so long may have killed whoever began to look at it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Take the run."""


@dataclass(frozen=True, slots=True)
class Isolate:
    """Take the run, but away from others: its last worker died (R7)."""


@dataclass(frozen=True, slots=True)
class Discard:
    """The message has nothing to say any more; `why` is for the log."""

    why: str


@dataclass(frozen=True, slots=True)
class Defer:
    """Show the message again at `until`."""

    until: datetime


@dataclass(frozen=True, slots=True)
class PollMaps:
    """Look at these maps, which go on elsewhere; then take the run if one has ended, or if it is due besides (R4, R9).

    While they go on, and nothing else is due, a look is no claim.
    """

    maps: tuple[str, ...]
    due_besides: bool


@dataclass(frozen=True, slots=True)
class NotifyHolder:
    """Somebody holds the run: put the end of this map into its record, for the holder to see."""

    map_step: str


Verdict = Claim | Isolate | Discard | Defer | PollMaps | NotifyHolder


def on_envelope(envelope: Envelope, row: Run | None, now: datetime, limits: EngineLimits, *, receives: int) -> Verdict:
    """What to do with an envelope whose blind claim failed, or that was not claimed blindly.

    In its first lease a run's envelope is handed back until the lease ends: the fast way to
    notice a crash. Later, other messages and the sweeper carry the run; but one that is delivered
    again may be the message a suspect's holder claimed it by, and is handed back as well.
    """
    if row is None:
        return Claim()
    if row.submission != envelope.submission:
        return Discard("another submission owns the run")
    match row.status:
        case Status.QUEUED:
            early = too_early(row.not_before, now, limits)
            return Claim() if early is None else Defer(early)
        case Status.RUNNING if abandoned(row, now, limits):
            return Isolate()
        case Status.RUNNING if (row.epoch <= 1 or receives > 1 or envelope.outages > 0) and receives < MOST_HAND_BACKS:
            return Defer(_lease_end(row, now, limits))
        case _:
            return Discard(f"the run is further on: {row.status}")


def claimed_first(message: Message, row: Run | None, now: datetime, *, receives: int, apart: bool) -> bool:
    """Whether a claim is to be committed before anything is decided on it (R7).

    So it is whenever a worker may have died of that decision: a death is counted in the record, and there it must be
    recorded first who held the run. A message says so that was received before, that stands for one nobody knows of
    what became, or that was sent `apart` unread; and
    a record that was let go by none, that counts crashes, or that is due for long. Such a claim costs a write more.
    """
    if receives > 1 or (isinstance(message, Envelope) and message.again):
        return True
    if row is None:
        return apart and isinstance(message, Envelope)
    late = row.status is Status.WAITING and row.due_at is not None and row.due_at + LATE < now
    return row.status is Status.RUNNING or row.crashes > 0 or late or (apart and isinstance(message, Envelope))


def too_early(not_before: datetime | None, now: datetime, limits: EngineLimits) -> datetime | None:
    """When a delayed run may begin, if that is later than clocks that differ could say (None: it may begin).

    The queue itself delays its envelope; this is for one that somebody moved by hand.
    """
    return not_before if not_before is not None and now + limits.skew < not_before else None


def on_wake(wake: Wake, row: Run | None, now: datetime, limits: EngineLimits, *, receives: int) -> Verdict:
    """What to do with a wake, given the row.

    A wake that is delivered again while the run is validly leased may be the very message its
    holder claimed it by, so it is handed back until the lease ends, as an envelope is; so is one put
    back for an outage, for an unanswered claim may have been carried out. A first delivery has
    nothing to say.
    """
    if row is None or row.submission != wake.submission:
        return Discard("no such run")
    if abandoned(row, now, limits):
        return Isolate()
    if row.status is Status.RUNNING and held(row, now, limits):
        if wake.map_step is not None and wake.map_step in open_distributed_maps(row):
            due_at = row.steps[wake.map_step].due_at
            # Its holder looks at the map, and may have looked a moment too early.
            return NotifyHolder(wake.map_step) if due_at is None or due_at > now else Defer(now + LOOKING)
        again = (receives > 1 or wake.outages > 0) and receives < MOST_HAND_BACKS
        return Defer(_lease_end(row, now, limits)) if again else Discard("the run is in good hands")
    if row.status is Status.WAITING and row.due_at is not None:
        maps = due_maps(row, now, signalled=wake.map_step)
        if maps:
            return PollMaps(maps, due_besides=_due_besides(row, now))
        if row.due_at <= now:
            # Its holder died while it was paused.
            return Isolate() if row.crashes else Claim()
        if row.due_at <= now + SOON:
            return Defer(row.due_at)
    return Discard(f"nothing is due: {row.status}")


def due_maps(row: Run, now: datetime, *, signalled: str | None) -> tuple[str, ...]:
    """The maps that go on elsewhere and are due for a look, and the one that rings."""
    return tuple(
        name
        for name in open_distributed_maps(row)
        if name == signalled or ((due_at := row.steps[name].due_at) is not None and due_at <= now)
    )


def _due_besides(row: Run, now: datetime) -> bool:
    """Whether a waiting run is due for more than a look at its maps."""
    if row.due_at is None or row.due_at > now:
        return False
    maps = open_distributed_maps(row)
    others = (state.due_at for name, state in row.steps.items() if name not in maps)
    return row.deadline <= now or runnable(row) or any(at is not None and at <= now for at in others)


def _lease_end(row: Run, now: datetime, limits: EngineLimits) -> datetime:
    end = row.lease_until + limits.skew if row.lease_until is not None else now
    return max(end, now) + timedelta(seconds=1)
