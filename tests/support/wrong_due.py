"""An independent judgement of a record's `due_at`: would a claim find something to do before it, or nothing at it?"""

from __future__ import annotations

from datetime import datetime, timedelta

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded, ValuesMissing
from fanfold.engine.record.messages import Wake
from fanfold.engine.record.run import Run, Status
from fanfold.engine.record.timers import first_look
from fanfold.engine.rules.decide import decide
from fanfold.engine.rules.delivery import Claim, Defer, Discard, Isolate, PollMaps, Verdict, on_wake
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import Claimed

_CLAIM = Claimed(owner="0" * 16, worker="somebody")
_A_MOMENT = timedelta(milliseconds=1)


def wrong_due(run: Run, workflow: Workflow, limits: EngineLimits, loaded: Loaded) -> str | None:
    """What is wrong with the time by which somebody must look at a waiting run; None when nothing is.

    A claim before then must find nothing to do: no step moves, and the run does not end. A wake that comes then must
    claim the run, if a claim then moves it on; and one that comes when a map is to be looked at must look at it.
    """
    if run.status is not Status.WAITING:
        return None
    if run.due_at is None:
        return "a waiting run has no due time"
    written_at = run.journal[-1].at if run.journal else run.created_at
    look = first_look(run.steps.values())
    if look is not None and run.due_at > look:
        return f"a map is to be looked at at {look}, and the run is due only at {run.due_at}"
    if look is not None and isinstance(verdict := _wake(run, max(look, written_at), limits), Discard | Defer):
        return f"a map is to be looked at at {look}, and a wake only says: {verdict}"
    try:
        before = run.due_at - _A_MOMENT
        if before > written_at and (found := _moves_on(run, workflow, limits, loaded, at=before)):
            return f"{found} at {before}, and it is due only at {run.due_at}"
        at = max(run.due_at, written_at)
        found = _moves_on(run, workflow, limits, loaded, at=at)
    except ValuesMissing:
        return None  # what is sealed away is no hint of what is due
    if found is None:
        return None
    verdict = _wake(run, at, limits)
    if isinstance(verdict, Claim | Isolate) or (isinstance(verdict, PollMaps) and verdict.due_besides):
        return None
    return f"{found} at {at}, when it is due, and a wake only says: {verdict}"


def _wake(run: Run, at: datetime, limits: EngineLimits) -> Verdict:
    wake = Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name)
    return on_wake(wake, run, at, limits, receives=1)


def _moves_on(run: Run, workflow: Workflow, limits: EngineLimits, loaded: Loaded, *, at: datetime) -> str | None:
    """What a claim at that time would change besides claiming."""
    then = decide(run, workflow, (_CLAIM,), at, limits=limits, loaded=loaded).run
    if then.terminal:
        return f"a claim ends the run ({then.status})"
    moved = [name for name, state in then.steps.items() if state != run.steps.get(name)]
    return f"a claim moves {', '.join(moved)}" if moved else None
