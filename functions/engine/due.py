"""When a run must be looked at, and what a message about it is good for (R2, R4, R5, R7).

Once a run's row exists, messages are hints. `on_envelope` and `on_wake` say what the hint is worth,
given the row as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from functions.engine.lease import abandoned, held
from functions.engine.message import Envelope, Wake
from functions.engine.run import Run, Status
from functions.engine.terms import Terms

SOON = timedelta(seconds=15)
"""A wake that comes this much too early is handed back instead of deleted: clocks differ (R4)."""

SUSPECT_RECEIVES = 3
"""A message received this often goes to the `resume` queue unread: its neighbours may be innocent (R7)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Take the run."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Take the run, but away from others: its last worker died (R7)."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The message has nothing to say any more; `why` is for the log."""

    why: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """Show the message again at `until`."""

    until: datetime


Verdict = Claim | Apart | Drop | HandBack


def on_envelope(envelope: Envelope, row: Run | None, now: datetime, terms: Terms, *, receives: int) -> Verdict:
    """What to do with an envelope whose blind claim failed, or that was not claimed blindly.

    In its first lease a run's envelope is handed back until the lease ends: the fast way to
    notice a crash. Later, other messages and the sweeper carry the run; but one that is delivered
    again may be the message a suspect's holder claimed it by, and is handed back as well.
    """
    if row is None:
        return Claim()
    if row.submission != envelope.submission:
        return Drop("another submission owns the run")
    match row.status:
        case Status.QUEUED:
            return Claim()
        case Status.RUNNING if abandoned(row, now, terms):
            return Apart()
        case Status.RUNNING if row.epoch <= 1 or receives > 1 or envelope.outages > 0:
            return HandBack(_lease_end(row, now, terms))
        case _:
            return Drop(f"the run is further on: {row.status}")


def on_wake(wake: Wake, row: Run | None, now: datetime, terms: Terms, *, receives: int) -> Verdict:
    """What to do with a wake, given the row.

    A wake that is delivered again while the run is validly leased may be the very message its
    holder claimed it by, so it is handed back until the lease ends, as an envelope is; so is one put
    back for an outage, for an unanswered claim may have been carried out. A first delivery has
    nothing to say.
    """
    if row is None or row.submission != wake.submission:
        return Drop("no such run")
    if abandoned(row, now, terms):
        return Apart()
    if row.status is Status.RUNNING and held(row, now, terms):
        again = receives > 1 or wake.outages > 0
        return HandBack(_lease_end(row, now, terms)) if again else Drop("the run is in good hands")
    if row.status is Status.WAITING and row.due_at is not None:
        if row.due_at <= now:
            return Claim()
        if row.due_at <= now + SOON:
            return HandBack(row.due_at)
    return Drop(f"nothing is due: {row.status}")


def _lease_end(row: Run, now: datetime, terms: Terms) -> datetime:
    end = row.lease_until + terms.skew if row.lease_until is not None else now
    return max(end, now) + timedelta(seconds=1)
