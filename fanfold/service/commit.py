"""The one room for commits: sign the decided record, put it under a condition, know one's own write, follow it up.

A commit is one conditional put of a run's next record, and what follows from it: counts, log lines, effects. A holder's
loop, an operation, the sweeper, and whoever looks at a map make theirs here. They differ in what they do about an
answer that got lost, which is an argument: `LostAnswer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from fanfold.engine.errors import Conflict, InfrastructureError, Unanswered
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, dump
from fanfold.engine.ports import Condition, IfVersion, Moment, RunKey
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Run
from fanfold.engine.record.sealing import merged, seal
from fanfold.engine.rules.decide import Decision
from fanfold.engine.rules.effects import ReleaseSlot, SendEnvelope, SendWake, StartAttempt, StartMap, StopMap
from fanfold.service.effects import EffectRunner
from fanfold.service.maps import Maps
from fanfold.service.payloads import Payloads
from fanfold.service.telemetry.run_metrics import committed, ended, new_entries
from fanfold.service.wiring import Services

SEAL_OVER_BYTES = 900
"""A head that is this big as it stands has what is finished sealed away: a write unit is 1,024 bytes (R8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The put of `run` in place of `before`, as `decision` wants it; `sent` is when the put began."""

    before: Run
    run: Run
    decision: Decision
    workflow: Workflow
    sent: Moment
    entries: Sequence[Entry] = field(init=False)
    """The journal entries that it adds, as they were decided: not signed."""

    def __post_init__(self) -> None:
        # As decided: of a record near the store's limit, what is new may be sealed away with the rest.
        object.__setattr__(self, "entries", new_entries(self.decision.run, self.before.last_seq))

    @property
    def first(self) -> Entry | None:
        """The first journal entry that it adds, if it adds any."""
        return self.entries[0] if self.entries else None

    def is_in(self, record: Run) -> bool:
        """Whether a record goes back to this put: it holds the entry that names it, whoever has written since."""
        return any(entry.write_id == self.run.write_id for entry in record.journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`commit` was done, and `record` stands: its own, or what somebody has written over it since."""

    commit: Commit
    record: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """The put is not known to be done. `record` stands, as far as there is one.

    `error` says that the put got no answer; without it, the store refused the put for the record's sake.
    """

    record: Run | None
    error: Unanswered | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAnswer:
    """What a writer does when its put met another record or got no answer, and so may have been done (R3).

    `recognise` finds, given the record that stands, the writer's commit that this record goes back to. `pause` comes
    before the record is read.
    """

    recognise: Callable[[Run], Awaitable[Commit | None]]
    pause: Callable[[], Awaitable[None]] | None = None


def by_write_id(commit: Commit) -> LostAnswer:
    """For who puts once: the record is this very put's, or it is somebody else's and has made ours needless."""

    async def recognise(recorded: Run) -> Commit | None:
        return commit if recorded.write_id == commit.run.write_id else None

    return LostAnswer(recognise=recognise)


def by_signature(services: Services, tried: Sequence[Commit]) -> LostAnswer:
    """For who tries again and again while others write: a put is known by its signed entry (`RecordWriter`)."""

    async def recognise(recorded: Run) -> Commit | None:
        done = next((commit for commit in tried if commit.is_in(recorded)), None)
        if done is None and any(commit.first and commit.first.seq <= recorded.sealed.last_seq for commit in tried):
            # The run's holder may have sealed the entry away meanwhile.
            whole = merged(recorded, await services.runs.segments(recorded))
            done = next((commit for commit in tried if commit.is_in(whole)), None)
        return done

    return LostAnswer(recognise=recognise)


async def put(
    services: Services, commit: Commit, lost: LostAnswer, *, condition: Condition | None = None
) -> Committed | Stands:
    """Make the put once, under `condition` (usually: the record before is as it was read).

    Raises an `InfrastructureError`: the put was refused; or it got no answer, and the record can't be read either
    (`Unanswered`). Raises `LimitExceeded` where the record is too big for the store.
    """
    if condition is None:
        condition = IfVersion(version=commit.before.version, submission=commit.before.submission)
    error: Unanswered | None = None
    try:
        head_bytes = await services.runs.put(commit.run, condition, now=services.clock.now())
    except Conflict as conflict:
        recorded: Run | None = conflict.current
    except Unanswered as unanswered:
        error = unanswered
        if lost.pause is not None:
            await lost.pause()
        recorded = await _recorded(services, commit)
    else:
        return Committed(commit=commit, record=fast_replace(commit.run, head_bytes=head_bytes))
    done = None if recorded is None else await lost.recognise(recorded)
    if done is None or recorded is None:
        return Stands(record=recorded, error=error)
    return Committed(commit=done, record=recorded)


async def _recorded(services: Services, commit: Commit) -> Run | None:
    key = RunKey(tenant=commit.run.tenant, run_id=commit.run.id)
    try:
        return await services.runs.get(key, now=services.clock.now())
    except InfrastructureError as error:
        raise Unanswered(f"a put got no answer, and its record can't be read: {error}") from error


def tell(commit: Commit, *, by_workflow: bool) -> None:
    """Count what was committed, and log what is worth a line."""
    committed(commit.before, commit.run, commit.entries, commit.workflow)
    if commit.run.terminal:
        ended(commit.run, by_workflow=by_workflow)


def carry_out(done: Committed, effects: EffectRunner, begin: Callable[[StartAttempt], None] | None = None) -> None:
    """Begin the effects of what was committed. `begin` is a holder's: nobody else begins attempts.

    An attempt that nobody begins is begun from the record, with the next claim.
    """
    commit = done.commit
    for effect in commit.decision.effects:
        match effect:
            case StartAttempt():
                if begin is not None:
                    begin(effect)
            case SendWake() | ReleaseSlot() | StartMap() | StopMap() | SendEnvelope():
                effects.follow(done.record, effect, committed=commit.sent)
            case _:
                assert_never(effect)


async def follow(services: Services, done: Committed) -> None:
    """`tell` and `carry_out` for those who hold no run: what follows is through when this returns."""
    tell(done.commit, by_workflow=services.settings.workflow_metrics)
    effects = EffectRunner(services)
    carry_out(done, effects)
    await effects.done()


def next_record(services: Services, run: Run, decision: Decision) -> Run:
    """The decided record under its next version, with an id of this write."""
    return fast_replace(decision.run, version=run.version + 1, write_id=services.ids.token())


class RecordWriter:
    """The next record of one run, made ready for its put: by its holder, or by an operator's move.

    What it names elsewhere is stored before it is put (R8). `all_of_it` says that the store refused it as too big:
    from then on everything that has ended is sealed.
    """

    def __init__(self, services: Services, workflow: Workflow, payloads: Payloads) -> None:
        self._services = services
        self._workflow = workflow
        self._payloads = payloads
        self._maps = Maps(services)
        self.all_of_it = False

    async def next(self, record: Run, decision: Decision, *, signed: bool = False) -> Run:
        """The record to put in place of `record`; what it names elsewhere is stored by then.

        `signed`: its first new journal entry names the put. The same move of two operators in one millisecond reads
        the same but for that.
        """
        run = next_record(self._services, record, decision)
        if signed:
            first = record.last_seq + 1
            journal = (replace(entry, write_id=run.write_id) if entry.seq == first else entry for entry in run.journal)
            run = fast_replace(run, journal=tuple(journal))
        return await self._sealed(record, await self._maps.pinned(await self._spilled(run)))

    async def _spilled(self, run: Run) -> Run:
        """A big output of the whole run is stored apart."""
        if not run.terminal or run.output is None or isinstance(run.output, BlobRef):
            return run
        data = dump(run.output)
        if len(data) <= self._services.settings.inline_bytes:
            return run
        ref = await self._payloads.store(run, f"output/{run.write_id}", run.output, data)
        return replace(run, output=ref)

    async def _sealed(self, record: Run, run: Run) -> Run:
        """What is finished is sealed away when the head is about to outgrow a write unit."""
        if not self.all_of_it and (record.head_bytes <= SEAL_OVER_BYTES or run.terminal):
            return run
        head, segments = seal(run, self._workflow, committed_seq=record.last_seq, all_of_it=self.all_of_it)
        key = RunKey(tenant=run.tenant, run_id=run.id)
        for segment in segments:
            await self._services.runs.put_segment(key, segment, now=self._services.clock.now())
        return head
