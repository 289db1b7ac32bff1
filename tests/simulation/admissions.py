"""What must hold of queue slots and of envelopes, checked at every write, send, reservation and return."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fanfold.engine.ports import RunKey
from fanfold.engine.record.messages import Envelope
from fanfold.engine.record.run import Run, Status
from tests.support.clock import START

if TYPE_CHECKING:
    from tests.simulation.audit import Audit


class Admissions:
    """The audit's part about what is accepted. `reserved` counts slots taken, `submits` what clients asked for."""

    def __init__(self, audit: Audit) -> None:
        self.accepted: dict[RunKey, Envelope] = {}
        self.outstanding: dict[str, Envelope] = {}
        self.reserved = 0
        self.submits = 0
        self._audit = audit
        self._returns: Counter[bool] = Counter()
        self._left_queue: Counter[bool] = Counter()

    def written(self, old: Run | None, run: Run) -> None:
        """A record was written: whether it left the queue by that, and what its place is worth now."""
        if not waits(run) and (old is None or waits(old)):
            self._left_queue[self._audit.simulation.author.kind == "api"] += 1
        self.check()

    def sent(self, envelope: Envelope) -> None:
        """An envelope is out: its run is accepted."""
        key = RunKey(tenant=envelope.tenant, run_id=envelope.run_id)
        self.accepted.setdefault(key, envelope)
        self.outstanding.setdefault(envelope.submission, envelope)
        self.check()

    def check(self) -> None:
        """The bound, and what the counter must cover."""
        queue = Counter(run.class_name for run in self._audit.latest.values() if waits(run))
        for class_name, rows in queue.items():
            bound = self._audit.simulation.rollout.bound(class_name)
            self._audit.hold(not bound or rows <= bound, "queued rows are within the bound", f"{rows} > {bound}")
        queued = queue.total()
        simulation = self._audit.simulation
        void = now_at(simulation.loop.time() - simulation.rollout.all[0].settings.slot_void_seconds)
        coming = sum(
            RunKey(tenant=e.tenant, run_id=e.run_id) not in self._audit.latest
            and e.slot is not None
            and e.accepted_at > void
            for e in self.outstanding.values()
        )
        taken = self._audit.simulation.slots.taken
        self._audit.hold(taken >= queued + coming, "places cover what is queued", f"{taken} < {queued} + {coming}")

    def given_back(self) -> None:
        """A place was returned just now."""
        by_api = self._audit.simulation.author.kind == "api"
        self._returns[by_api] += 1
        rows = [self._audit.latest.get(RunKey(tenant=e.tenant, run_id=e.run_id)) for e in self.outstanding.values()]
        void = sum(
            row is not None and row.submission != envelope.submission
            for row, envelope in zip(rows, self.outstanding.values(), strict=True)
        )
        most = self._left_queue[by_api] + (self.reserved - len(self.outstanding) + void if by_api else 0)
        self._audit.hold(self._returns[by_api] <= most, "a place is returned once", f"{self._returns[by_api]} > {most}")
        self.check()


def waits(run: Run) -> bool:
    """Whether the run is in the queue: accepted and never claimed, perhaps paused meanwhile."""
    return run.status is Status.QUEUED or run.in_queue


def now_at(seconds: float) -> datetime:
    """The true time of the loop's."""
    return START + timedelta(seconds=seconds)
