"""Commits by those who hold no run: an operation, the sweeper, whoever looks at a map.

A commit is one conditional put of a run's next record, and what follows from it: counts, log lines, effects. A holder
has its own loop around the same parts (`fanfold.service.worker.run_coordinator`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from fanfold.engine.errors import Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.ports import IfVersion, Moment, RunKey
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run
from fanfold.engine.record.sealing import merged
from fanfold.engine.rules.decide import Decision
from fanfold.engine.rules.effects import (
    Effect,
    ReleaseSlot,
    SendEnvelope,
    SendWake,
    StartAttempt,
    StartMap,
    StopMap,
)
from fanfold.service.effects import EffectRunner, Following
from fanfold.service.telemetry.run_metrics import committed, ended, new_entries
from fanfold.service.wiring import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The put of `run` in place of `before`, as `decision` wants it; `sent` is when the put began."""

    before: Run
    run: Run
    decision: Decision
    workflow: Workflow
    sent: Moment
    first: Entry | None = field(init=False)
    """The first journal entry that it adds, if it adds any, as it was decided: not signed."""

    def __post_init__(self) -> None:
        # As decided: of a record near the store's limit, what is new may be sealed away with the rest.
        entries = new_entries(self.decision.run, self.before.last_seq)
        object.__setattr__(self, "first", entries[0] if entries else None)

    def is_in(self, record: Run) -> bool:
        """Whether a record goes back to this put: it holds the entry that names it, whoever has written since."""
        return any(entry.write_id == self.run.write_id for entry in record.journal)


async def put(services: Services, commit: Commit) -> None:
    """Make the put once.

    Raises `Conflict` where another record stands, and other `InfrastructureError`s where it is not known to be done.
    """
    condition = IfVersion(version=commit.before.version, submission=commit.before.submission)
    await services.runs.put(commit.run, condition, now=services.clock.now())


async def put_and_recognise(services: Services, commit: Commit) -> None:
    """As `put`; after a put without an answer the record says whether it was done."""
    try:
        await put(services, commit)
    except Unanswered:
        key = RunKey(tenant=commit.run.tenant, run_id=commit.run.id)
        recorded = await services.runs.get(key, now=services.clock.now())
        if recorded is None or recorded.write_id != commit.run.write_id:
            raise


async def which_of(services: Services, commits: Sequence[Commit], recorded: Run) -> Commit | None:
    """Which of these puts the record that stands goes back to, if any. Each of them was signed (`RecordWriter`)."""
    done = next((commit for commit in commits if commit.is_in(recorded)), None)
    if done is None and any(commit.first and commit.first.seq <= recorded.sealed.last_seq for commit in commits):
        # Its holder may have sealed the entry away meanwhile.
        whole = merged(recorded, await services.runs.segments(recorded))
        done = next((commit for commit in commits if commit.is_in(whole)), None)
    return done


async def follow(services: Services, commit: Commit) -> None:
    """Count what was committed, and carry out its effects; none outlives this call."""
    entries = new_entries(commit.decision.run, commit.before.last_seq)
    committed(commit.before, commit.run, entries, commit.workflow)
    if commit.run.terminal:
        ended(commit.run, by_workflow=services.settings.workflow_metrics)
    effects = EffectRunner(services)
    for effect in beside(commit.decision.effects):
        effects.follow(commit.run, effect, committed=commit.sent)
    await effects.done()


def beside(effects: Iterable[Effect]) -> Iterator[Following]:
    """The effects that anybody carries out. An attempt only a holder begins, from the record, with its next claim."""
    for effect in effects:
        match effect:
            case StartAttempt():
                continue
            case SendWake() | ReleaseSlot() | StartMap() | StopMap() | SendEnvelope():
                yield effect
            case _:
                assert_never(effect)


def next_record(services: Services, run: Run, decision: Decision) -> Run:
    """The decided record under its next version, signed with an id of this write."""
    return fast_replace(decision.run, version=run.version + 1, write_id=services.ids.token())
