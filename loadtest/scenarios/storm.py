"""A storm at a bound: 10,000 submits by the clock while every worker is busy and only so many runs may wait.

Exactly as many as the bound are accepted, everybody else hears 429, and hears it about as fast as on a quiet day.
"""

from __future__ import annotations

import time
from typing import Annotated

from fanfold import Client
from loadtest.counting import PAUSE_SECONDS, all_there, drained, rows, tags_of
from loadtest.measure import Quantiles, quantiles
from loadtest.scenario import Found, Session
from loadtest.swarm import Request, elapsed_seconds
from loadtest.systems_under_test import Needs
from loadtest.targets import Goal
from loadtest.verdict import at_most, equal, shown, toward
from loadtest.warmup import warm
from loadtest.workflows import BUSY, counted_call

QUICK = {"posts": 300, "bound": 50, "rate": 30.0, "rounds": 1}

IDLE_RATE = 10.0
IDLE_SECONDS = 30.0
QUICK_IDLE_SECONDS = 3.0
SLOWER_AT_MOST = 3.0
BUSY_RUNS = 8
CALL_MS = 20


def storm(
    session: Session,
    *,
    posts: Annotated[int, "Submits in all."] = 10_000,
    bound: Annotated[int, "Runs that may wait."] = 1_000,
    rate: Annotated[float, "Submits per second; the emulator takes about 110 of all kinds."] = 50.0,
    rounds: Annotated[int, "Parts of the storm, each followed by a quiet time: noise then hits both."] = 5,
) -> Found:
    """A worker whose every place is taken by runs that commit once a second; storm and quiet time in turns."""
    needs = Needs(workers=1, concurrency=BUSY_RUNS, max_queue_depth=bound, settings={"submits_per_minute": 0})
    idle_seconds = QUICK_IDLE_SECONDS if session.quick else IDLE_SECONDS
    with session.target(needs) as target, target.client() as client:
        workflow = counted_call(counted=target.ledger is not None)
        for document in (workflow, BUSY):
            client.apply(document)
        warm(target, client, workflow["name"], 5, {"ms": CALL_MS})
        busy = _occupied(client, f"{session.tag}-busy")
        facts = {"workflow": workflow["name"], "ms": CALL_MS, "tag": session.tag}
        stormed: list[Request] = []
        calm: list[Request] = []
        elapsed = 0.0
        for _ in range(rounds):
            seconds = posts / rounds / rate
            part = session.swarm("rate", target, users=1, seconds=seconds, phase="storm", rate=rate, **facts)
            elapsed += elapsed_seconds(part)
            stormed += part
            # The queue is still full: the same answer, from a service that has nothing else to do.
            seconds = idle_seconds / rounds
            calm += session.swarm("rate", target, users=1, seconds=seconds, phase="idle", rate=IDLE_RATE, **facts)
        waiting = rows(client, session.tag)
        queued = {queue["class"]: queue["queued"] for queue in client.queues()}["model"]
        still_busy = rows(client, f"{session.tag}-busy").count("running")
        for run_id in busy:
            client.cancel(run_id)
        ended = drained(client, session.tag, within_seconds=120 + bound / 10)
        left = {queue["class"]: queue["queued"] for queue in client.queues()}["model"]
    refused, idle = _refused(stormed), _refused(calm)
    others = [request for request in stormed + calm if request.status not in (202, 429)]
    checks = [
        equal("submits sent", len(stormed), rounds * round(posts / rounds)),
        *toward(
            Goal.STORM, equal("accepted", sum(request.status == 202 for request in stormed), bound), n=len(stormed)
        ),
        equal("rows that waited when the storm was over", waiting.count("queued"), bound),
        equal("slots taken at that time", queued, bound),
        *toward(
            Goal.STORM,
            equal("answers that are neither 202 nor 429, errors included", len(others), 0),
            n=len(stormed + calm),
        ),
        equal("busy runs that still ran after it", still_busy, BUSY_RUNS),
        *all_there("afterwards: ", ended, bound, ledger=target.ledger),
        equal("slots taken in the end", left, 0),
        *toward(
            Goal.STORM,
            session.timed(at_most("p99 of a 429 ÷ its idle p99", refused.p99 / idle.p99, SLOWER_AT_MOST)),
            n=refused.n + idle.n,
        ),
        shown("median of a 429 ÷ its idle median", f"{refused.p50 / idle.p50:.3g}"),
        shown("429 in the storm, from the intended time", refused),
        shown("429 when idle", idle),
        shown("submits per second", f"{len(stormed) / elapsed:.4g}"),
    ]
    return Found(
        figures={
            "elapsed_seconds": elapsed,
            "submits_per_second": len(stormed) / elapsed,
            "refused_seconds": refused,
            "idle_refused_seconds": idle,
            "accepted_seconds": quantiles(r.seconds for r in stormed if r.status == 202),
        },
        checks=checks,
    )


def _refused(requests: list[Request]) -> Quantiles:
    return quantiles(request.seconds for request in requests if request.status == 429)


def _occupied(client: Client, tag: str) -> list[str]:
    """Runs that take every place of the worker, once all of them run. Raises TimeoutError."""
    ids = [client.submit(BUSY["name"], tags=tags_of(tag))["id"] for _ in range(BUSY_RUNS)]
    ends_at = time.monotonic() + 60
    while rows(client, tag).count("running") < BUSY_RUNS:
        if time.monotonic() > ends_at:
            raise TimeoutError("the worker's places were not taken within 60 s")
        time.sleep(PAUSE_SECONDS)
    return ids
