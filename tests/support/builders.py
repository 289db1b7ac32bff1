"""Valid values by default: a test names only what matters to it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fanfold.engine.language.workflow import version_of
from fanfold.engine.ports import IndexKey, Registered, RunKey, Token
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.messages import Envelope, QueueName, Wake, first_version
from fanfold.engine.record.run import Run, Slot, Status, StepState, StepStatus
from tests.support.clock import START

LANE = QueueName(class_name="model", role="normal")
RESUMING = QueueName(class_name="model", role="resume")
DEAD = QueueName(class_name="model", role="dead")

WORKFLOW = {"name": "tiny", "steps": {"only": {"task": "core.echo", "input": "${input}"}}}


def an_id(number: int = 1) -> str:
    """A run id as long as a real one, 22 characters of URL-safe base64, other for each number."""
    return f"r{number:021d}"


def a_submission(number: int = 1) -> str:
    """A submission id as long as a real one: 16 characters of URL-safe base64."""
    return f"s{number:015d}"


def an_envelope(number: int = 1, **given: Any) -> Envelope:
    """An accepted run of `tiny`, before its row."""
    values: dict[str, Any] = {
        "tenant": "acme",
        "run_id": an_id(number),
        "submission": a_submission(number),
        "workflow": "tiny",
        "workflow_version": a_version(WORKFLOW),
        "class_name": "model",
        "lane": "normal",
        "input": {"name": "Ada"},
        "request_hash": hashlib.sha256(b"body").hexdigest(),
        "accepted_at": START,
        "slot": Slot(shard=0, hour=int(START.timestamp() // 3600)),
    }
    values |= given
    values.setdefault("deadline", values["accepted_at"] + timedelta(hours=24))
    return Envelope(**values)


def a_wake(number: int = 1, **given: Any) -> Wake:
    """A ring for the run of that number."""
    values: dict[str, Any] = {
        "tenant": "acme",
        "run_id": an_id(number),
        "submission": a_submission(number),
        "class_name": "model",
    }
    return Wake(**values | given)


def a_run(number: int = 1, **given: Any) -> Run:
    """Version 1 of a run of `tiny`, `queued`, with whatever is named changed."""
    created_at = given.get("created_at", START)
    run = first_version(an_envelope(number, accepted_at=created_at))
    run = replace(run, steps={"only": StepState()}, write_id=f"w{number:015d}")
    return replace(run, **given)


def a_full_run(number: int = 1, **given: Any) -> Run:
    """A run in the middle of its life, with something in every part of its record."""
    started = START + timedelta(milliseconds=1_234)
    values: dict[str, Any] = {
        "tags": {"team": "blue"},
        "status": Status.WAITING,
        "version": 4,
        "epoch": 2,
        "owner": "c000000000000001",
        "lease_until": started + timedelta(seconds=60),
        "due_at": started + timedelta(seconds=90),
        "started_at": started,
        "crashes": 1,
        "steps": {
            "only": StepState(
                status=StepStatus.SUCCEEDED,
                attempts=2,
                failures=1,
                started_at=started,
                finished_at=started + timedelta(seconds=1),
                output={"text": "grüß dich", "score": 0.1, "list": [1, 2.5, None, True]},
            ),
            "next": StepState(status=StepStatus.RETRYING, attempts=1, failures=1, due_at=started),
        },
        "journal": (
            Entry(seq=1, at=START, type=EventType.RUN_ACCEPTED),
            Entry(seq=2, at=started, type=EventType.RUN_CLAIMED, data={"epoch": 1}),
            Entry(seq=3, at=started, type=EventType.STEP_STARTED, step="only", attempt=1),
        ),
    }
    return a_run(number, **values | given)


def key_of(run: Run) -> RunKey:
    """A run's address."""
    return RunKey(tenant=run.tenant, run_id=run.id)


def index_key_of(run: Run) -> IndexKey:
    """A run's row in the list index."""
    return IndexKey(tenant=run.tenant, run_id=run.id, created_at=run.created_at)


def a_version(document: Any) -> str:
    """A workflow version's name for a document."""
    return version_of(document)


def a_workflow(name: str = "tiny", *, created_at: datetime = START, **given: Any) -> Registered:
    """A registered workflow; keywords change its document."""
    document = WORKFLOW | {"name": name} | given
    return Registered(name=name, version=a_version(document), document=document, created_at=created_at)


def a_token(number: int = 1, **given: Any) -> Token:
    """A token of acme that may do everything."""
    values: dict[str, Any] = {
        "id": f"t{number:015d}",
        "sha256": hashlib.sha256(f"secret {number}".encode()).hexdigest(),
        "tenant": "acme",
        "scopes": frozenset({"submit", "read", "operate", "admin"}),
        "owner": "Ada",
        "created_at": START,
    }
    return Token(**values | given)
