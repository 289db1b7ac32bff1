"""What a worker knows of the record of its run, and whether it may go on and write it (R2, R3, R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from fanfold.engine.errors import InfrastructureError, NotFound, Unanswered
from fanfold.engine.ports import Clock, Condition, IfVersion, RunKey
from fanfold.engine.record.run import Run
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.service.commit import Commit
from fanfold.service.telemetry.reporting import Metric, count
from fanfold.service.wiring import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is terminal or let go, by this loop's own commit or by an operator's."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipLost:
    """The run is somebody else's, or the lease ran out; `held` says whether it ever was ours.

    `record` is the record that stands, where it is known.
    """

    run_id: str
    record: Run | None
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A put under way: how many events of the inbox it carries; `renewal`: it renews the lease, as it was time to."""

    commit: Commit
    events: int
    renewal: bool


class Judgement(Enum):
    """What a record that none of our puts made means to its claimer or holder."""

    CHANGED = "an operator has written over ours: go on from there"
    AS_IT_WAS = "the record is still the one to be replaced: try again"
    LOST = "the run is somebody else's"


class Ownership:
    """One claim of a run: the record that it goes by, its puts without an answer, and its lease.

    `owner` is the claim id. The record is ours while its owner is this id, whoever wrote it last. `at_end` is called
    when the lease is over.
    """

    def __init__(
        self,
        services: Services,
        base: Run,
        condition: Condition,
        *,
        owner: str,
        limits: EngineLimits,
        at_end: Callable[[], None],
    ) -> None:
        self._runs = services.runs
        self._clock = services.clock
        self._owner = owner
        self.record = base
        self.condition = condition
        self.key = RunKey(tenant=base.tenant, run_id=base.id)
        self.held = False
        self.unanswered: dict[str, Write] = {}
        """Puts that may have been done, by their write ids."""
        self.seen = 0.0
        """When the record was last known to stand, in seconds of the monotonic clock."""
        self.lease = HeldLease(services.clock, lease=limits.lease, skew=limits.skew, at_end=at_end)

    def hold(self, record: Run, *, sent: float | None) -> None:
        """From now on the run is held, by this record; its put was sent at `sent` (None: no later than the last)."""
        self.unanswered.clear()
        self.held = True
        self.record = record
        self.condition = IfVersion(version=record.version, submission=record.submission)
        self.seen = self._clock.monotonic()
        self.lease.extend(record.lease_until, since=sent)

    def go_on_from(self, record: Run) -> None:
        """An operator has written over a renewal or over our last record: that record is ours."""
        first = min((write.commit.sent.monotonic for write in self.unanswered.values()), default=None)
        self.hold(record, sent=None if self.held else first)

    def lost(self, record: Run | None) -> OwnershipLost:
        """The claim is over; `record` is the record that stands, where it is known."""
        return OwnershipLost(run_id=self.record.id, record=record, held=self.held)

    async def recognise(self, record: Run) -> Commit | None:
        """Our put that the record goes back to: its own, or one that an operator has written over.

        Raises `Unanswered` when that can't be found out.
        """
        if not self._ours(record):
            return None
        if (write := self.unanswered.get(record.write_id)) is not None:
            return write.commit
        try:
            return await self._written_over(record)
        except (InfrastructureError, NotFound) as error:
            raise Unanswered(f"whether a put was done can't be found out: {error}") from error

    def judge(self, record: Run | None) -> Judgement:
        """What a record that goes back to none of our puts means."""
        if record is not None and self._ours(record):
            return Judgement.CHANGED if record.version != self.record.version else Judgement.AS_IT_WAS
        return Judgement.AS_IT_WAS if not self.held and self._replaceable(record) else Judgement.LOST

    def _ours(self, record: Run) -> bool:
        return record.owner == self._owner and record.submission == self.record.submission

    async def _written_over(self, record: Run) -> Commit | None:
        """The unanswered put that somebody has written over: the record goes back to it, entry by entry.

        Whoever wrote over it may have sealed its entries away.
        """
        entries = {entry.seq: entry for entry in record.journal}
        commits = (write.commit for write in self.unanswered.values())
        for commit in sorted(commits, key=lambda commit: commit.run.last_seq, reverse=True):
            seq = commit.run.last_seq
            if seq <= self.record.last_seq:
                break
            if seq <= record.sealed.last_seq:
                entries |= {
                    entry.seq: entry for entry in await self._runs.sealed_entries(record, after=seq - 1, limit=1)
                }
            if entries.get(seq) == commit.run.journal[-1]:
                return commit
        return None

    def _replaceable(self, record: Run | None) -> bool:
        """Whether a claim's condition still holds for this record: its put was not done, or not yet."""
        if isinstance(self.condition, IfVersion):
            return record is not None and (record.version, record.submission) == (
                self.condition.version,
                self.condition.submission,
            )
        return record is None or (record.version == 1 and record.submission == self.record.submission)


class HeldLease:
    """The lease as its holder sees it: when to renew, and when to stop, earlier than it ends for anybody else.

    It lasts from the sending of the last put that was done, for a lease less the clocks' `skew`, on
    the monotonic clock; and on the wall clock until the lease's end as recorded. `at_end` is called
    when it is over, even while its holder waits for an answer; then it is over for good, whatever
    the answer is.
    """

    def __init__(self, clock: Clock, *, lease: timedelta, skew: timedelta, at_end: Callable[[], None]) -> None:
        self._clock = clock
        self._renew_seconds = lease.total_seconds() / 3
        self._seconds = (lease - skew).total_seconds()
        self._at_end = at_end
        self._until: datetime | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.since = 0.0

    def extend(self, until: datetime | None, *, since: float | None = None) -> None:
        """The record that stands says `until`; it was sent at `since` (None: no later than the last one)."""
        self.stop()
        self._until = until
        if since is not None:
            self.since = since
        left = self.since + self._seconds - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, left), self._end)

    def _end(self) -> None:
        self._ended = True
        self._at_end()

    def stop(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def over(self) -> bool:
        """Whether the holder must have stopped."""
        past = self._until is not None and self._clock.now() > self._until
        return self._ended or past or self._clock.monotonic() >= self.since + self._seconds

    def renewal_left(self) -> float:
        """Seconds until a renewal is due, at a third of the lease; 0 or less: it is."""
        return self.since + self._renew_seconds - self._clock.monotonic()


def count_loss(lost: OwnershipLost, class_name: str) -> None:
    """Somebody else has the run. A holder that learned it by a write was fenced off; else its lease ran out."""
    of_class = (class_name,)
    if not lost.held:
        return count(Metric.CLAIMS_LOST, of=of_class)
    count(Metric.RUNS_LOST, of=of_class)
    if lost.record is not None:
        count(Metric.FENCED_WRITES, of=of_class)
    return None
