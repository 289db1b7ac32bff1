"""An independent judgement of a record's `due_at`: would a claim find something to do before it, or nothing at it?"""

from __future__ import annotations

from datetime import datetime, timedelta

from functions.engine.decide import decide
from functions.engine.due import Apart, Claim, Drop, HandBack, Look, Verdict, on_wake
from functions.engine.events import Claimed
from functions.engine.message import Wake
from functions.engine.run import Run, Status, first_look
from functions.engine.terms import Terms
from functions.engine.values import Loaded, ValuesMissing
from functions.engine.workflow import Workflow

_CLAIM = Claimed(owner="0" * 16, worker="somebody")
_A_MOMENT = timedelta(milliseconds=1)


def wrong_due(run: Run, workflow: Workflow, terms: Terms, loaded: Loaded) -> str | None:
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
    if look is not None and isinstance(verdict := _wake(run, max(look, written_at), terms), Drop | HandBack):
        return f"a map is to be looked at at {look}, and a wake only says: {verdict}"
    try:
        before = run.due_at - _A_MOMENT
        if before > written_at and (found := _moves_on(run, workflow, terms, loaded, at=before)):
            return f"{found} at {before}, and it is due only at {run.due_at}"
        at = max(run.due_at, written_at)
        found = _moves_on(run, workflow, terms, loaded, at=at)
    except ValuesMissing:
        return None  # what is sealed away is no hint of what is due
    if found is None:
        return None
    verdict = _wake(run, at, terms)
    if isinstance(verdict, Claim | Apart) or (isinstance(verdict, Look) and verdict.due_besides):
        return None
    return f"{found} at {at}, when it is due, and a wake only says: {verdict}"


def _wake(run: Run, at: datetime, terms: Terms) -> Verdict:
    wake = Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name)
    return on_wake(wake, run, at, terms, receives=1)


def _moves_on(run: Run, workflow: Workflow, terms: Terms, loaded: Loaded, *, at: datetime) -> str | None:
    """What a claim at that time would change besides claiming."""
    then = decide(run, workflow, (_CLAIM,), at, terms=terms, loaded=loaded).run
    if then.terminal:
        return f"a claim ends the run ({then.status})"
    moved = [name for name, state in then.steps.items() if state != run.steps.get(name)]
    return f"a claim moves {', '.join(moved)}" if moved else None
