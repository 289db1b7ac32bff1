"""What must hold at any time, whatever is written: what is recorded as going on goes on, what has ended has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanfold.engine.record.run import Run, Status, StepStatus
from tests.support.clock import START

if TYPE_CHECKING:
    from tests.simulation.audit import Audit
    from tests.simulation.nodes import Node

STARTS_WITHIN = 5.0
"""Seconds in which an undisturbed holder has begun what its record calls started."""

AFTERMATH = 50.0
"""What happened to a process so long before a write of its may still cost it the run: the write itself may be late."""

FROZEN_AT_MOST = 220.0
"""So long after the last fault a frozen process may still stand still."""

COMES_BACK_WITHIN = 600.0
"""Seconds after which a due run is taken up: a minute for the sweeper, and the time of those in line before it."""


class Liveness:
    """The audit's part that looks now and then. `passes` counts the sweeper's."""

    def __init__(self, audit: Audit) -> None:
        self.passes = 0
        self._audit = audit

    def messages(self) -> None:
        """No run's messages multiply."""
        counts = self._audit.simulation.queue.by_run()
        simulation = self._audit.simulation
        # Each submit sends an envelope of its own, void or not.
        allowed = 2 + len(simulation.fate.struck) + self.passes + simulation.deaths + self._audit.admissions.submits
        allowed += self._audit.moves.asked + self._audit.maps.rings
        for run_id, count in counts.items():
            self._audit.hold(count <= allowed, "messages do not multiply", f"{run_id[:6]}: {count} > {allowed}")

    def look(self) -> None:
        """What must hold at any time."""
        now = self._audit.simulation.loop.time()
        self.messages()
        for key, run in self._audit.latest.items():
            since = self._audit.history[key][-1][0]
            if run.status is Status.WAITING:
                self._comes_back(run, since)
            if run.terminal:
                self._stopped(run, since)
            if run.status is not Status.RUNNING or run.owner is None or now - since < STARTS_WITHIN:
                continue
            if not healthy(self._audit.owners[run.owner], min(since, self._audit.held_at[key])):
                continue
            self._audit.hold(now < self._audit.lease_ends[key], "an undisturbed holder renews", run.id)
            told = self._audit.owners[run.owner].settings.lease_seconds / 3 + STARTS_WITHIN
            self._audit.hold(not run.cancel_requested or now - since < told, "a holder hears of its end", run.id)
            for name, state in run.steps.items():
                begun = (run.id, run.submission, name, state.attempts) in self._audit.simulation.ledger.executions
                self._audit.hold(
                    state.status is not StepStatus.RUNNING or begun or state.map is not None,
                    "what is recorded as started runs",
                    f"{run.id}/{name}",
                )

    def _comes_back(self, run: Run, since: float) -> None:
        """When faults are over, a run that was let go is taken up when it is due."""
        assert run.due_at is not None, "a waiting run says when somebody must look"
        now, due = self._audit.simulation.loop.time(), (run.due_at - START).total_seconds()
        late = now - max(due, since, self._audit.simulation.calm_at + FROZEN_AT_MOST)
        self._audit.hold(
            late < COMES_BACK_WITHIN, "a run that was let go comes back on time", f"{run.id}: {late:.0f} s"
        )

    def _stopped(self, run: Run, since: float) -> None:
        """What has ended has nothing running, but where somebody can't know."""
        if self._audit.simulation.loop.time() - since < STARTS_WITHIN:
            return
        for run_id, execution in self._audit.simulation.ledger.all:
            node = self._audit.simulation.nodes[execution.process]
            if run_id == run.id and not execution.end and node.kind != "batch" and healthy(node, since):
                self._audit.fail("what has ended is stopped", f"{run.id} in {node.name}")


def healthy(holder: Node, since: float) -> bool:
    """Whether nothing happened to the process that could cost it the run it wrote then."""
    return not holder.dead and not holder.frozen and holder.disturbed_at < since - AFTERMATH
