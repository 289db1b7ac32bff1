"""What must hold of what is counted against a run: its workers' deaths, and what they used up for nothing (R7)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fanfold.engine.ports import RunKey
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Run, Status, StepState, StepStatus

if TYPE_CHECKING:
    from tests.simulation.audit import Audit

NOTHING = frozenset(
    {EventType.STEP_INTERRUPTED, EventType.RUN_SUSPENDED, EventType.RUN_FAILED, EventType.STEP_CANCELLED}
)
"""What the journal may say after a claim under which nothing began or ended."""


class Crashes:
    """The audit's part about crashes: so many are charged as there were deaths, no fewer, and for nothing else.

    `fruitless` counts a run's hand-overs of nothing.
    """

    def __init__(self, audit: Audit) -> None:
        self.fruitless: Counter[RunKey] = Counter()
        self._audit = audit
        self._charged: Counter[RunKey] = Counter()
        self._dealt: Counter[RunKey] = Counter()

    def written(self, old: Run | None, run: Run, *, died: bool) -> None:
        """A record was written; `died`: it was taken from a holder to whom something happened."""
        key = RunKey(tenant=run.tenant, run_id=run.id)
        if old is None or run.try_number != old.try_number:
            # A claim may make the row, and let the run go at once, with nothing begun.
            least = int(old is None and run.owner is not None and _nothing_since_its_claim(run))
            self._audit.hold(run.crashes <= least, "a new run and a redrive begin with no crashes", run.id)
            for counts in (self._charged, self._dealt, self.fruitless):
                counts[key] += run.crashes
            return
        new = run.journal[len(old.journal) :]
        settled = any(_ended(state) and not _ended(old.steps.get(name)) for name, state in run.steps.items())
        charged = run.crashes - old.crashes if run.crashes else 0
        fruitless = charged > 0 and not died and _nothing_since_its_claim(run)
        # A step that settles is progress, also one that fails because it was interrupted.
        excused = settled or old.cancel_requested or run.status is Status.CANCELLED
        self.fruitless[key] += fruitless
        self._dealt[key] += fruitless or (died and not excused)
        self._charged[key] += max(0, charged)
        totals = f"{run.id}: {self._charged[key]} charged, {self._dealt[key]} dealt"
        self._audit.hold(self._charged[key] == self._dealt[key], "only a crash counts as one, and each does", totals)
        stopped = any(e.type is EventType.STEP_INTERRUPTED and e.data == {"counted": False} for e in new)
        forgotten = run.crashes < old.crashes and not (settled or run.terminal)
        released = run.lease_until is None or run.status is Status.WAITING
        why = f"{run.id}: {old.crashes} → {run.crashes}"
        self._audit.hold(not forgotten or (released and not stopped), "crashes are forgotten by progress alone", why)
        if not run.terminal:
            self._interruptions(old, run, died=died)

    def _interruptions(self, old: Run, run: Run, *, died: bool) -> None:
        for name, before in old.steps.items():
            cut_off = died and before.status is StepStatus.RUNNING and not old.cancel_requested
            more = run.steps[name].interruptions - before.interruptions
            self._audit.hold(more == int(cut_off), "a step counts what cut it off", f"{name}: {more}")


def _ended(state: StepState | None) -> bool:
    """By itself, and not because the run was."""
    return state is not None and state.settled and state.status is not StepStatus.CANCELLED


def _nothing_since_its_claim(run: Run) -> bool:
    claims = [number for number, entry in enumerate(run.journal) if entry.type is EventType.RUN_CLAIMED]
    return bool(claims) and all(entry.type in NOTHING for entry in run.journal[claims[-1] + 1 :])
