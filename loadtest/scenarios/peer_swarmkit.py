"""SwarmKit's package on this machine, in turns with ours: users with a 2 s call in one process, and 1 to 8 workers.

Its jobs are counted in its own table, ours by their rows. Only one of the two is loaded at a time; the ratio counts.
What PostgreSQL and the package need: `apt-get install postgresql`, and a package index for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Annotated, Any

import httpx

from lab.peers.processes import until
from lab.peers.swarmkit import PACKAGE, TOPOLOGY, SwarmKit, completed, serving
from loadtest.counting import drained, moment
from loadtest.measure import quantiles
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.scenarios.workers import backlog, span, staffing
from loadtest.swarm import elapsed_seconds, failures
from loadtest.systems_under_test import Target
from loadtest.targets import Goal
from loadtest.verdict import Check, at_least, equal, shown, toward
from loadtest.warmup import warm
from loadtest.workflows import counted_call

USERS = Numbers((25, 100))
WORKERS = Numbers((1, 2, 4, 8))
QUICK = {"users": Numbers((4,)), "workers": Numbers((1, 2)), "seconds": 8.0, "per_worker": 8, "rounds": 1}

WIDE_MS = 2_000
SPLIT_MS = 500
JITTER = 0.25
WAIT_SECONDS = 300.0


def peer_swarmkit(
    session: Session,
    *,
    users: Annotated[Numbers, "Users at once, each with one run of a 2 s call (± 25 %)."] = USERS,
    workers: Annotated[Numbers, "Workers of one run each, 500 ms a call."] = WORKERS,
    seconds: Annotated[float, "How long users go on."] = 40.0,
    per_worker: Annotated[int, "Runs of a backlog for each worker."] = 30,
    rounds: Annotated[int, "How often each is taken, in turn with ours; medians count."] = 3,
) -> Found:
    """Both are up all the time; an idle one takes next to nothing."""
    session.recorder.note(peer=PACKAGE)
    figures: dict[str, Any] = {"users": {}, "workers": {}}
    checks: list[Check] = []
    folder = session.scratch / "all-in-one"
    folder.mkdir()
    most = int(max(users))
    jitter_ms = round(WIDE_MS * JITTER)
    with (
        serving(folder, latency_ms=WIDE_MS, jitter_ms=jitter_ms, jobs=most, split=False) as theirs,
        staffing(session, max_waiters=2 * most, max_watchers=2 * most) as staffed,
        staffed(1, most) as (target, client),
    ):
        document = counted_call(counted=target.ledger is not None)
        client.apply(document)
        warm(target, client, document["name"], 5, {"ms": 50}, callers=most)
        for level in map(int, users):
            rates: dict[str, list[float]] = {"theirs": [], "ours": []}
            for number in range(rounds):
                name = f"{level} users, round {number + 1}"
                rate, found = _their_users(session, theirs, level, seconds=seconds, phase=f"{name}, theirs")
                rates["theirs"].append(rate)
                checks += found
                facts = {"workflow": document["name"], "ms": WIDE_MS, "jitter": JITTER if target.ledger else 0.0}
                tag = f"{session.tag}-{level}-{number}"
                requests = session.swarm(
                    "call", target, users=level, seconds=seconds, phase=f"{name}, ours", tag=tag, **facts
                )
                ended = drained(client, tag, within_seconds=WAIT_SECONDS)
                rates["ours"].append(ended.count("succeeded") / elapsed_seconds(requests))
                checks.append(equal(f"{name}: our failed requests", failures(requests), 0))
                checks.append(equal(f"{name}: our runs that succeeded", ended.count("succeeded"), ended.total))
            figures["users"][level] = rates
            beside = _beside(session, f"{level} users", rates)
            checks += toward(Goal.WIDE, *beside, n=rounds) if level == most else beside
    folder = session.scratch / "split"
    folder.mkdir()
    with (
        serving(folder, latency_ms=SPLIT_MS, jitter_ms=0, jobs=most, split=True) as theirs,
        staffing(session) as staffed,
    ):
        for count in map(int, workers):
            rates = {"theirs": [], "ours": []}
            for number in range(rounds):
                name = f"{count} workers, round {number + 1}"
                rate, found = _their_drain(session, theirs, count, per_worker * count, phase=f"{name}, theirs")
                rates["theirs"].append(rate)
                checks += found
                with staffed(count, 1) as (target, client):
                    document = counted_call(counted=target.ledger is not None)
                    client.apply(document)
                    warm(target, client, document["name"], 2 * count, {"ms": SPLIT_MS}, callers=2)
                    tag = f"{session.tag}-split-{count}-{number}"
                    runs = per_worker * count
                    rows = backlog(session, client, tag, document["name"], SPLIT_MS, runs, phase=f"{name}, ours")
                    rates["ours"].append(runs / span(rows, "started_at"))
                    checks.append(equal(f"{name}: our runs that succeeded", rows.count("succeeded"), runs))
            figures["workers"][count] = rates
            checks += _beside(session, f"{count} workers, drain", rates)
    return Found(figures=figures, checks=checks)


def _their_users(
    session: Session, theirs: SwarmKit, users: int, *, seconds: float, phase: str
) -> tuple[float, list[Check]]:
    before = completed(theirs.jobs())
    target = Target(kind="swarmkit", url=theirs.url, token=None)
    requests = session.swarm(
        "swarmkit", target, users=users, seconds=seconds, phase=phase, topology=TOPOLOGY, ms=WIDE_MS
    )
    accepted = sum(request.name == "submit" and request.status == 200 for request in requests)
    until(
        lambda: all(job["status"] not in ("queued", "running") for job in theirs.jobs()),
        within_seconds=WAIT_SECONDS,
        what="the end of SwarmKit's jobs",
    )
    done = completed(theirs.jobs()) - before
    runs = quantiles(request.seconds for request in requests if request.name == "run")
    checks = [equal(f"{phase}: jobs that completed", done, accepted), shown(f"{phase}: a run", runs)]
    return done / elapsed_seconds(requests), checks


def _their_drain(session: Session, theirs: SwarmKit, count: int, runs: int, *, phase: str) -> tuple[float, list[Check]]:
    """A backlog, then the workers: timed from when the last of them had begun, which is kind to those that start."""
    session.say(f"{phase}: {runs} runs")
    with httpx.Client(timeout=30) as client:
        ids = {theirs.submit(client) for _ in range(runs)}

    def own() -> list[dict[str, Any]]:
        return [job for job in theirs.jobs() if job["id"] in ids]

    with theirs.workers(count):
        until(
            lambda: all(job["completed_at"] for job in own()),
            within_seconds=WAIT_SECONDS,
            what="the end of SwarmKit's jobs",
        )
    jobs = own()
    for job in jobs:
        facts = {"created_at": job["created_at"], "started_at": job["started_at"], "finished_at": job["completed_at"]}
        session.recorder.row(phase=phase, id=job["id"], status=job["status"], worker=job["worker_id"], **facts)
    return steady_rate(jobs), [equal(f"{phase}: jobs that completed", completed(jobs), runs)]


def steady_rate(jobs: Sequence[Mapping[str, Any]]) -> float:
    """Jobs per second from when each worker that took part had begun one, to the last end."""
    first: dict[str, datetime] = {}
    for job in jobs:
        began = moment(job["started_at"])
        first[job["worker_id"]] = min(began, first.get(job["worker_id"], began))
    since = max(first.values())
    ends = [moment(job["completed_at"]) for job in jobs]
    late = sorted(end for end in ends if end > since)
    return len(late) / (late[-1] - since).total_seconds()


def _beside(session: Session, name: str, rates: Mapping[str, Sequence[float]]) -> list[Check]:
    ratio = median(ours / theirs for ours, theirs in zip(rates["ours"], rates["theirs"], strict=True))
    told = {who: ", ".join(f"{rate:.3g}" for rate in of) for who, of in rates.items()}
    return [
        session.timed(at_least(f"{name}: our runs per second ÷ SwarmKit's, median", ratio, 1.0)),
        shown(f"{name}: runs per second", f"ours {told['ours']}; SwarmKit's {told['theirs']}"),
    ]
