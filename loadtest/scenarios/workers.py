"""Scaling out: 1, 2, 4 and 8 workers of one run each, 500 ms a call; and one worker of a hundred runs of 2 s calls.

Each level is taken twice: end to end, runs being submitted one by one while the workers are at it, and as the drain of
a backlog that becomes visible all at once. In memory workers are places of one process; elsewhere each is a process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any

from fanfold import Client
from loadtest.counting import Rows, all_there, drained, moment, tags_of
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.systems_under_test import Needs, Target, workers
from loadtest.targets import Goal
from loadtest.verdict import Check, at_least, shown, toward
from loadtest.warmup import warm
from loadtest.workflows import counted_call

LEVELS = Numbers((1, 2, 4, 8))
QUICK = {"levels": Numbers((1, 2)), "per_worker": 6, "wide_rounds": 1}

CALL_MS = 500
WIDE_MS = 2_000
WIDE = 100
"""Runs at once in the one wide worker."""
EFFICIENCY = 7.5 / 8
WIDE_SHARE = 0.9
SUBMITTERS = 4
STARTED = "worker started"
"""What a worker process says when it begins to poll."""
START_SECONDS = 60.0
SUBMITS_A_SECOND = 40.0
"""What the slowest box takes; a backlog becomes visible when all of it is there."""
SETTINGS = {"submits_per_minute": 0}


def workers_scenario(
    session: Session,
    *,
    levels: Annotated[Numbers, "Workers, one level after the other."] = LEVELS,
    per_worker: Annotated[int, "Runs of a level for each of its workers."] = 40,
    wide_rounds: Annotated[int, "Runs for each place of the wide worker; 0: leave it out."] = 20,
) -> Found:
    """Rows and executions are counted after each phase; rates are runs by the time that really passed."""
    figures: dict[str, Any] = {}
    checks: list[Check] = []
    with staffing(session) as staffed:
        for level in levels:
            count = int(level)
            with staffed(count, 1) as (target, client):
                figures[f"{count} workers"], found = _at(session, target, client, count, runs=per_worker * count)
                checks += found
        if wide_rounds:
            with staffed(1, WIDE) as (target, client):
                wide, found = _wide(session, target, client, runs=WIDE * wide_rounds)
                figures[f"1 worker, {WIDE} at once"] = wide
                checks += found
                share = wide["runs_per_second"] / (1_000 * WIDE / WIDE_MS)
                ideal = session.timed(at_least("one wide worker ÷ its ideal", share, WIDE_SHARE))
                checks += toward(Goal.WIDE, ideal, n=WIDE * wide_rounds)
    least, most = int(levels[0]), int(levels[-1])
    for way in ("end_to_end", "drain"):
        one, many = figures[f"{least} workers"][way], figures[f"{most} workers"][way]
        times = many / one
        what = f"{most} workers ÷ {least}, {way.replace('_', ' ')}"
        scaled = session.timed(at_least(what, times, round(most / least * EFFICIENCY, 2), "×"))
        checks += toward(Goal.SCALING, scaled, n=per_worker * (least + most))
    return Found(figures=figures, checks=checks)


@contextmanager
def staffing(session: Session, **settings: Any) -> Iterator[Any]:
    """Gives a context manager that has so many workers of so many runs each at work on the target.

    `settings` are fields of the settings that are to differ from the shipped ones.
    """
    settings = {**SETTINGS, **settings}
    if session.kind != "emulator":

        @contextmanager
        def alike(count: int, concurrency: int) -> Iterator[tuple[Target, Client]]:
            needs = Needs(workers=count, concurrency=concurrency, settings=settings)
            with session.target(needs) as target, target.client() as client:
                yield target, client

        yield alike
        return
    with session.target(Needs(unworked=True, settings=settings)) as target, target.client() as client:
        assert target.stack is not None
        stack = target.stack

        @contextmanager
        def staffed(count: int, concurrency: int) -> Iterator[tuple[Target, Client]]:
            # A folder of its own for each time: what earlier workers said is no sign that these have started.
            folder = Path(mkdtemp(prefix=f"workers-{count}-{concurrency}-", dir=session.scratch))
            with workers(stack, count, concurrency=concurrency, folder=folder):
                ends_at = time.monotonic() + START_SECONDS
                while sum(STARTED in log.read_text(encoding="utf-8") for log in folder.glob("*.log")) < count:
                    if time.monotonic() > ends_at:
                        raise TimeoutError(f"of {count} workers some had not started after {START_SECONDS:g} s")
                    time.sleep(0.1)
                yield target, client

        yield staffed


def _at(
    session: Session, target: Target, client: Client, count: int, *, runs: int
) -> tuple[dict[str, Any], list[Check]]:
    name = f"{count} workers"
    workflow = _ready(target, client, count)
    session.say(f"{name}: {runs} runs end to end, then as many drained")
    tag = f"{session.tag}-{count}-end"
    with ThreadPoolExecutor(SUBMITTERS) as threads:
        submitted = [threads.submit(client.submit, workflow, {"ms": CALL_MS}, tags=tags_of(tag)) for _ in range(runs)]
        for each in submitted:
            each.result()
    ended = _ended(session, client, tag, runs, phase=f"{name}, end to end")
    drain = backlog(session, client, f"{session.tag}-{count}-drain", workflow, CALL_MS, runs, phase=f"{name}, drain")
    figures = {
        "end_to_end": runs / span(ended, "created_at"),
        "drain": runs / span(drain, "started_at"),
        "ideal": 1_000 * count / CALL_MS,
    }
    checks = [
        *all_there(f"{name}: ", ended, runs, ledger=target.ledger),
        *all_there(f"{name}, drain: ", drain, runs, ledger=target.ledger),
    ]
    checks.append(shown(f"{name}: runs per second, end to end", f"{figures['end_to_end']:.3g}"))
    checks.append(shown(f"{name}: runs per second, drained", f"{figures['drain']:.3g} of {figures['ideal']:g}"))
    return figures, checks


def _wide(session: Session, target: Target, client: Client, *, runs: int) -> tuple[dict[str, Any], list[Check]]:
    workflow = _ready(target, client, SUBMITTERS)
    session.say(f"one worker, {WIDE} at once: {runs} runs of {WIDE_MS} ms")
    ended = backlog(session, client, f"{session.tag}-wide", workflow, WIDE_MS, runs, phase="one wide worker")
    rate = runs / span(ended, "started_at")
    checks = all_there("one wide worker: ", ended, runs, ledger=target.ledger)
    checks.append(shown("one wide worker: runs per second", f"{rate:.3g} of {1_000 * WIDE / WIDE_MS:g}"))
    return {"runs_per_second": rate}, checks


def _ready(target: Target, client: Client, runs: int) -> str:
    document = counted_call(counted=target.ledger is not None)
    client.apply(document)
    warm(target, client, document["name"], max(runs, SUBMITTERS), {"ms": CALL_MS}, callers=SUBMITTERS)
    name: str = document["name"]
    return name


def backlog(session: Session, client: Client, tag: str, workflow: str, ms: int, runs: int, *, phase: str) -> Rows:
    """A backlog that nobody sees before all of it is there."""
    delay = 3 + round(runs / SUBMITS_A_SECOND)
    one = {"workflow": workflow, "input": {"ms": ms}, "tags": tags_of(tag), "delay": delay}
    refused = [result for result in client.submit_many([one] * runs) if result["status"] != 202]
    if refused:
        raise RuntimeError(f"{len(refused)} of {runs} submits were refused: {refused[0]}")
    return _ended(session, client, tag, runs, phase=phase)


def _ended(session: Session, client: Client, tag: str, runs: int, *, phase: str) -> Rows:
    found = drained(client, tag, within_seconds=120 + 3 * runs)
    session.keep(phase, found.listed)
    return found


def span(found: Rows, begin: str) -> float:
    """From the first of these times to the last end, in seconds."""
    begun = min(moment(row[begin]) for row in found.listed if row[begin])
    ended = max(moment(row["finished_at"]) for row in found.listed if row["finished_at"])
    return (ended - begun).total_seconds()
