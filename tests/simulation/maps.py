"""What must hold of maps: every recorded end of an item really happened, and a map's output is its items', in order."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.maps import MapRecord, Via, execution_name
from fanfold.engine.ports import MapKey, RunKey
from fanfold.engine.record.run import Run, Status, StepState
from tests.simulation.liveness import healthy
from tests.simulation.workload import Execution

if TYPE_CHECKING:
    from fanfold.tasks.context import Context
    from tests.simulation.audit import Audit

ITEM_FAULTS = frozenset({"Fail", "Retry", "timed_out", "no_time", "no_result"})
"""How an item may fail here."""

SETTLES_WITHIN = 60.0
"""Seconds after which a batch whose process nothing happened to sees what was recorded."""


class Maps:
    """The maps' part of the audit. `rings` counts what the state machine sent."""

    def __init__(self, audit: Audit) -> None:
        self.rings = 0
        self._audit = audit
        self._recorded: defaultdict[tuple[RunKey, str, str], set[tuple[int, int]]] = defaultdict(set)
        self._succeeded: dict[tuple[RunKey, str, str, int, int], float] = {}

    def began(self, run: Run | None, ctx: Context, process: str) -> Execution:
        """An item begins, in this process."""
        assert ctx.index is not None, "only items begin so"
        simulation, hold = self._audit.simulation, self._audit.hold
        slot = f"{ctx.step}[{ctx.index}]"
        # At any time before: a batch that has looked at the run is carried through, whatever becomes of it meanwhile.
        records = [past for _, past in self._audit.history[RunKey(tenant=ctx.tenant, run_id=ctx.run_id)]]
        steps = [past.steps.get(ctx.step) for past in records if past.submission == ctx.submission]
        hold(any(step is not None and step.map is not None for step in steps), "commit before act", slot)
        in_batch = simulation.nodes[process].kind == "batch"
        if run is not None and in_batch and ctx.attempt == 1:
            key = RunKey(tenant=ctx.tenant, run_id=ctx.run_id)
            known = self._succeeded.get((key, ctx.submission, ctx.step, run.try_number, ctx.index))
            now = simulation.loop.time()
            undisturbed = healthy(simulation.nodes[process], now)
            late = known is not None and now - known > SETTLES_WITHIN and undisturbed
            hold(not late, "an item that succeeded is not begun again", slot)
        execution = Execution(process, simulation.loop.time())
        simulation.ledger.of_item(ctx).append(execution)
        return execution

    def recorded(self, key: MapKey, record: MapRecord) -> None:
        """A batch has left its record."""
        hold = self._audit.hold
        run_key = RunKey(tenant=key.tenant, run_id=key.run_id)
        run = self._audit.latest.get(run_key)
        hold(run is not None and run.submission == key.submission, "records belong to a run", key)
        indexes = [result.index for result in record.results]
        # A success counts in every try: as if it were of try 0.
        self._recorded[run_key, key.submission, key.step] |= {(record.try_number, index) for index in indexes} | {
            (0, result.index) for result in record.results if result.error is None
        }
        hold(indexes[:1] == [record.first], "a record is named for its first item", indexes)
        hold(all(a < b for a, b in pairwise(indexes)), "a record is in order", indexes)
        for result in record.results:
            slot = f"{key.step}[{result.index}]"
            if result.error is not None:
                hold(result.error.type in ITEM_FAULTS, "an item fails by itself", f"{slot}: {result.error}")
            elif run is not None:
                output = self._audit.value(run, result.output)
                hold(self._happened(run, key.step, result.index, output), "an item's success was executed", slot)
                place_in_try = (run_key, key.submission, key.step, record.try_number, result.index)
                self._succeeded.setdefault(place_in_try, self._audit.simulation.loop.time())

    def ended(self, run: Run, step: MapStep, state: StepState) -> None:
        """A map has succeeded: each output is one of its item's, or null for one that failed."""
        hold = self._audit.hold
        assert state.map is not None, "and they have begun"
        self._over(run, step, state)
        outputs = self._audit.value(run, state.output)
        hold(len(outputs) == state.map.items, "a map has an output for each item", f"{step.name}: {len(outputs)}")
        for index, output in enumerate(outputs):
            happened = output is None or self._happened(run, step.name, index, output)
            hold(happened, "an output is what was returned", f"{step.name}[{index}]")
        failed = sum(output is None for output in outputs)
        hold(failed == state.map.failed, "a map counts what failed", f"{step.name}: {failed}")
        hold(step.tolerate.bears(failed, len(outputs)), "a map bears what it may", f"{step.name}: {failed}")

    def failed(self, run: Run, step: MapStep, state: StepState) -> None:
        """A map has failed: more of its items than it bears, or its worker died where that ends it."""
        kind = "" if state.error is None else state.error.type
        if kind == "interrupted":
            return
        if kind == "internal" and self._audit.simulation.perils.flaws:
            return  # our own bug was in what its items gave
        self._over(run, step, state)
        borne = state.map is None or step.tolerate.bears(state.map.failed or 0, state.map.items)
        self._audit.hold(kind == "items_failed" and not borne, "a map fails by its items", f"{step.name}: {kind}")

    def _over(self, run: Run, step: MapStep, state: StepState) -> None:
        """A map elsewhere ends when each item's end is recorded, or its execution is closed."""
        if state.map is None or state.map.via is not Via.STEP_FUNCTIONS:
            return
        name = execution_name(run.id, run.submission, step.name, run.try_number)
        going = self._audit.simulation.machine.executions.get(name, False)
        recorded = self._recorded[RunKey(tenant=run.tenant, run_id=run.id), run.submission, step.name]
        every = all({(run.try_number, index), (0, index)} & recorded for index in range(state.map.items))
        self._audit.hold(not going or every, "a map ends when its items have, or its execution", name)

    def _happened(self, run: Run, step: str, index: int, output: object) -> bool:
        executions = self._audit.simulation.ledger.items.get((run.id, run.submission, step, index), ())
        return any(execution.end == "succeeded" and execution.output == output for execution in executions)


def by_look(old: Run, run: Run) -> bool:
    """Whether a write only notes what was heard of maps elsewhere: that takes no claim.

    It may change nothing: a map that rings when it is due already makes its holder look again all the same.
    """
    same = (old.owner, old.status, old.lease_until, old.journal) == (
        run.owner,
        run.status,
        run.lease_until,
        run.journal,
    )
    return same and run.status in (Status.WAITING, Status.RUNNING)
