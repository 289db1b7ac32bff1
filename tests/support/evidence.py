"""What remains of runs when they have ended, judged: their records and the ledger of what was really executed.

The tasks of the runs under test are `chaos.effect`, so the ledger, which no record can influence,
has a line for each execution that came to its end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import Run, Status, StepStatus

OPEN, ENDED = EventType.STEP_STARTED, EventType.STEP_SUCCEEDED

RUN_ENDS = {
    Status.SUCCEEDED: EventType.RUN_SUCCEEDED,
    Status.FAILED: EventType.RUN_FAILED,
    Status.CANCELLED: EventType.RUN_CANCELLED,
}


class Execution(NamedTuple):
    """One execution of a step, as both the journal and the ledger name it."""

    run_id: str
    step: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Ended runs, and how often each of their executions is in the ledger."""

    runs: Mapping[str, Run]
    executed: Mapping[Execution, int]

    def problems(self, steps: Mapping[str, Iterable[str]]) -> list[str]:
        """Every promise that was broken, a sentence each. `steps` names each workflow's steps that write the ledger."""
        found: list[str] = []
        for run in self.runs.values():
            found += [f"{run.id} ({run.workflow}): {what}" for what in _journal(run)]
            found += [f"{run.id} ({run.workflow}): {what}" for what in _steps(run, steps[run.workflow])]
            found += [f"{run.id} ({run.workflow}): {what}" for what in self._executions(run, set(steps[run.workflow]))]
        return found

    def statuses(self) -> Counter[str]:
        """How many runs ended how."""
        return Counter(str(run.status) for run in self.runs.values())

    def of(self, kind: EventType) -> int:
        """How many journal entries of a kind there are, over all runs."""
        return sum(entry.type is kind for run in self.runs.values() for entry in run.journal)

    def _executions(self, run: Run, names: Collection[str]) -> list[str]:
        ends = _ends(run.journal)
        executed = {(one.step, one.attempt): times for one, times in self.executed.items() if one.run_id == run.id}
        found = []
        for (step, attempt), times in executed.items():
            if (step, attempt) not in ends:
                found.append(f"{step}#{attempt} was executed, and its record never called it started")
            if times > 1:
                found.append(f"{step}#{attempt} was executed {times} times")
        # An execution whose success is recorded took place once; one that was interrupted at most once.
        for (step, attempt), end in ends.items():
            if step in names and end is ENDED and executed.get((step, attempt), 0) == 0:
                found.append(f"{step}#{attempt} has succeeded, and the ledger does not know of it")
        return found


def gather(runs: Mapping[str, Run], ledger: Path) -> Evidence:
    """The evidence on these runs."""
    executed: Counter[Execution] = Counter()
    for line in ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ():
        told = json.loads(line)
        if told["run"] in runs:
            executed[Execution(told["run"], told["step"], told["attempt"])] += 1
    return Evidence(runs=runs, executed=executed)


def _journal(run: Run) -> list[str]:
    """A journal has no gap, goes forward in time, and tells of one beginning and one end."""
    entries, found = run.journal, []
    if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
        found.append(f"its journal has the numbers {[entry.seq for entry in entries]}")
    if any(after.at < before.at for before, after in pairwise(entries)):
        found.append("its journal goes back in time")
    kinds = [entry.type for entry in entries]
    if kinds[:1] != [EventType.RUN_ACCEPTED] or kinds[-1:] != [RUN_ENDS.get(run.status)]:
        found.append(f"it is {run.status}, its journal goes from {kinds[:1]} to {kinds[-1:]}")
    if sum(kind in RUN_ENDS.values() for kind in kinds) != 1:
        found.append("its journal has several ends")
    if kinds.count(EventType.RUN_CLAIMED) != run.epoch:
        found.append(f"it was claimed {kinds.count(EventType.RUN_CLAIMED)} times, and its epoch is {run.epoch}")
    return found


def _steps(run: Run, names: Iterable[str]) -> list[str]:
    """A step's attempts follow each other, and after its success there is none."""
    found = []
    for name in names:
        told = [entry for entry in run.journal if entry.step == name and entry.type is not EventType.STEP_EMITTED]
        state = run.steps.get(name)
        starts = [entry.attempt for entry in told if entry.type is OPEN]
        if starts != list(range(1, len(starts) + 1)):
            found.append(f"{name} began its attempts in the order {starts}")
        if any(entry.type is ENDED for entry in told[:-1]):
            found.append(f"{name} goes on after its success: {[str(entry.type) for entry in told]}")
        succeeded = state is not None and state.status is StepStatus.SUCCEEDED
        if run.status is Status.SUCCEEDED and not succeeded:
            found.append(f"{name} is {state and state.status} in a run that succeeded")
        if succeeded and (not told or told[-1].type is not ENDED):
            found.append(f"{name} succeeded, its journal does not say so")
    return found


def _ends(journal: Sequence[Entry]) -> Mapping[tuple[str, int], EventType | None]:
    """How each attempt ended that the journal calls started; None where it does not say."""
    ends: dict[tuple[str, int], EventType | None] = {}
    for entry in journal:
        if entry.step is None or entry.attempt is None:
            continue
        key = (entry.step, entry.attempt)
        if entry.type is OPEN:
            ends[key] = None
        elif key in ends and entry.type is not EventType.STEP_EMITTED:
            ends[key] = entry.type
    return ends
