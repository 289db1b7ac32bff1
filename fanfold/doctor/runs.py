"""Runs that cannot go on by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial

from fanfold.doctor.census import MOST
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy
from fanfold.engine.errors import NewerSchema
from fanfold.engine.record.messages import RESUME, QueueName, Wake
from fanfold.engine.record.run import SCHEMA, Run, Status
from fanfold.engine.rules.lease import abandoned
from fanfold.service.engine_limits import engine_limits
from fanfold.service.wiring import Services

LATE = timedelta(minutes=3)
"""The last wake may be lost, and the sweeper sends another within two minutes (docs/guarantees.md); one more minute."""
NAMED = 5
"""So many runs are named; the others are counted."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """Runs nobody looked at in time, that newer code wrote, or whose class or lane is not deployed."""
    limits, classes, now = engine_limits(deployment.settings), deployment.settings.classes, deployment.now
    foreign: list[Run] = []
    overdue: list[Run] = []
    dead: list[Run] = []
    expired: list[Run] = []
    for run in deployment.census.runs:
        if run.class_name not in classes or run.lane not in classes[run.class_name].lanes:
            foreign.append(run)
        elif run.status is Status.WAITING and run.due_at is not None and run.due_at + LATE < now:
            overdue.append(run)
        elif abandoned(run, now - LATE, limits) and abandoned(run, now, limits):
            dead.append(run)
        elif run.status is Status.QUEUED and min(run.deadline, run.queue_deadline or run.deadline) + LATE < now:
            expired.append(run)
    if overdue:
        yield _silent(
            deployment,
            overdue,
            f"{named(overdue)} should have been looked at over {minutes()} minutes ago.",
            "Their timers, signals or retries stand still.",
        )
    if dead:
        yield _silent(
            deployment,
            dead,
            f"{named(dead)} lost their worker over {minutes()} minutes ago, and nobody has taken them up.",
            "They wait for the sweeper's cursor, or for workers that do not come.",
        )
    if expired:
        yield Finding(
            what=f"{named(expired)} are queued past their deadline.",
            why="Nobody has told them that they failed, and each holds a queue slot.",
            fix="The sweeper settles them; if this stays, see docs/operations.md#sweeper-silent.",
        )
    if foreign:
        where = sorted({f"{run.class_name}/{run.lane}" for run in foreign})
        yield Finding(
            what=f"{named(foreign)} belong to {', '.join(where)}, which this deployment does not have.",
            why="No worker takes them and the sweeper passes them over.",
            fix="Deploy the class or lane again until they have ended, or cancel them.",
        )
    newer = [key for key, why in deployment.census.unreadable.items() if isinstance(why, NewerSchema)]
    if newer:
        names = ", ".join(key.run_id for key in newer[:NAMED])
        yield Finding(
            what=f"{len(newer)} runs were written by newer code than this (a schema above {SCHEMA}): {names}.",
            why="After a rollback, old code leaves them alone: they stand still until newer code is there.",
            fix="Deploy the newer code again: it goes on with them (docs/operations.md#rolling-back).",
        )
    for key, why in deployment.census.unreadable.items():
        if isinstance(why, NewerSchema):
            continue
        yield Finding(
            what=f"The record of run {key.run_id} of tenant {key.tenant} can't be read: {why}.",
            why="The run stands still, its queue slot stays taken, and in its hour of acceptance no slot is healed.",
            fix="Put its item back from a backup, or give the run up:"
            f" fanfold remove --tenant {key.tenant} {key.run_id} (docs/operations.md#unreadable).",
        )
    for key, damage in deployment.census.lost_batches.items():
        yield Finding(
            what=f"What a batch of a map of run {key.run_id} of tenant {key.tenant} recorded can't be read: {damage}.",
            why="Its items count as failed: none whose end was recorded is worked on again by itself.",
            fix=f"When the run has failed: fanfold redrive {key.run_id} works on them again.",
        )
    if not deployment.census.complete:
        yield Finding(
            what=f"There are more than {MOST:,} active runs; the others were not looked at.",
            why="What is said of runs and slots here holds for the oldest ones of the first tenants.",
            fix="Look at the dashboard; when the backlog is gone, ask again.",
        )


def _silent(deployment: Deployment, runs: Sequence[Run], what: str, why: str) -> Finding:
    return Finding(
        what=what,
        why=why,
        fix="Send wakes for them (a message too many costs one read); if that does not help, see"
        " docs/operations.md#sweeper-silent and #oldest-message.",
        remedy=Remedy(
            does=f"send wakes for {named(runs)}", apply=lambda: deployment.ask(partial(_send_wakes, runs=runs))
        ),
    )


async def _send_wakes(services: Services, *, runs: Sequence[Run]) -> None:
    for run in runs:
        wake = Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name)
        await services.queue.send(QueueName(class_name=run.class_name, role=RESUME), wake)


def named(runs: Sequence[Run]) -> str:
    """How many runs, and the ids of the first."""
    ids = ", ".join(run.id for run in runs[:NAMED]) + (", …" if len(runs) > NAMED else "")
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''} ({ids})"


def minutes() -> int:
    """`LATE` in minutes."""
    return LATE // timedelta(minutes=1)


CHECK = Check(
    name="runs", looks_at="runs that are overdue, of newer code, or of a class that is not deployed", find=find
)
