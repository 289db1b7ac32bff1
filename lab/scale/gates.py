"""Which limits a write goes through, and how many write units a second each lets pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fanfold.adapters.aws.run_items import shard_of
from fanfold.adapters.memory.run_store import bucket_of
from fanfold.engine.ports import Bucket
from fanfold.engine.record.run import Run, Status
from lab.scale.deployment import Deployment, Kind
from lab.scale.limits import BURST_SECONDS

Gate = tuple[Kind, int]
"""One limit: its kind, and which shard of it."""

Units = Mapping[Gate, float]
"""Write units by the limits they count against."""


class Tokens:
    """So many units a second, with what one second brings as the most at one moment.

    Kept as the time `until` which it takes to bring all that was taken: nothing has to be counted up. `burst` is in
    seconds of what is brought.
    """

    __slots__ = ("burst", "per_second", "until")

    def __init__(self, per_second: float, burst_seconds: float = BURST_SECONDS) -> None:
        self.per_second = per_second
        self.burst = burst_seconds
        self.until = 0.0

    def wait(self, now: float, units: float) -> float:
        """How long it takes until so many are there, in seconds."""
        return max(0.0, max(self.until, now) + units / self.per_second - self.burst - now)

    def take(self, now: float, units: float) -> float:
        """Take them, there or not; returns from when on they are there, in seconds."""
        self.until = max(self.until, now) + units / self.per_second
        return max(now, self.until - self.burst)


class Gates:
    """All limits of a deployment. `used` and `refused` count units and refusals by kind."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._tokens: dict[Gate, Tokens] = {}
        self.used: defaultdict[Kind, float] = defaultdict(float)
        self.refused: Counter[Kind] = Counter()

    def passed(self, now: float, units: Units) -> Kind | None:
        """Take the units of one write if all its limits have them, else none; returns the limit that has not."""
        for gate, count in units.items():
            if self.of(gate).wait(now, count) > 0:
                self.refused[gate[0]] += 1
                return gate[0]
        self.taken(now, units)
        return None

    def taken(self, now: float, units: Units) -> float:
        """Take the units of one write in any case; returns from when on all its limits have them."""
        at = now
        for gate, count in units.items():
            at = max(at, self.of(gate).take(now, count))
            self.used[gate[0]] += count
        return at

    def of(self, gate: Gate) -> Tokens:
        """One limit."""
        found = self._tokens.get(gate)
        if found is None:
            found = self._tokens[gate] = Tokens(self._deployment.writes(gate[0]))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Where the two indexes have a run: its partition in each, and what it is sorted by in the second."""

    listed: Gate
    waiting: tuple[Gate, datetime] | None

    @classmethod
    def of(cls, run: Run, deployment: Deployment) -> Rows:
        """The rows of this record."""
        kind = Kind.ACTIVE if bucket_of(run) == Bucket.ACTIVE else Kind.ENDED
        due = run.due_at if run.status is Status.WAITING else None
        return cls(
            listed=(kind, shard_of(run.id, deployment.index_shards)),
            waiting=None if due is None else ((Kind.WAITING, shard_of(run.id, deployment.due_shards)), due),
        )


def units_of_put(before: Rows | None, after: Rows, units: float = 1.0) -> Units:
    """What one put of a record of so many units counts against.

    A row of an index is one unit, put or taken out; a row whose key changes is both.
    """
    found: defaultdict[Gate, float] = defaultdict(float, {(Kind.TABLE, 0): units})
    old_listed = None if before is None else before.listed
    if old_listed != after.listed:
        for listed in (old_listed, after.listed):
            if listed is not None:
                found[listed] += 1
                found[Kind.LIST, 0] += 1
    old_waiting = None if before is None else before.waiting
    if old_waiting != after.waiting:
        for waiting in (old_waiting, after.waiting):
            if waiting is not None:
                found[waiting[0]] += 1
                found[Kind.DUE, 0] += 1
    return found


def units_of_slot(shard: int) -> Units:
    """What taking or returning a slot counts against: the counter's own item, and the table."""
    return {(Kind.TABLE, 0): 1.0, (Kind.SLOTS, shard): 1.0}
