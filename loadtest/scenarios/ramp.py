"""A ramp as SwarmKit publishes it: more and more users, each with one run of one 2 s model call at a time.

A closed loop, which hides a slow service's latency: for comparison only. `open` measures latency.
"""

from __future__ import annotations

from typing import Annotated, Any

from fanfold import Client
from loadtest.counting import all_there, drained
from loadtest.measure import quantiles
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.swarm import elapsed_seconds, failures
from loadtest.systems_under_test import Needs, Target
from loadtest.verdict import Check, equal, shown
from loadtest.warmup import warm
from loadtest.workflows import counted_call

LEVELS = Numbers((5, 25, 50, 100))
QUICK = {"levels": Numbers((2, 5)), "seconds": 8.0, "call_ms": 500}

JITTER = 0.25
SWARMKIT_RUNS_PER_SECOND = {5: 2.2, 25: 10.0, 50: 20.0, 100: 31.0, 200: 31.0}
"""Its all-in-one mode on two cores by users, run again for 2 s calls; flat from 100 on."""


def ramp(
    session: Session,
    *,
    levels: Annotated[Numbers, "Users at once, one level after the other."] = LEVELS,
    seconds: Annotated[float, "How long each level lasts."] = 40.0,
    call_ms: Annotated[int, "How long a model call takes, ± 25 %."] = 2_000,
) -> Found:
    """Levels on one worker process of as many runs as users; rows and executions are counted after each."""
    figures: dict[str, Any] = {"levels": {}}
    checks: list[Check] = []
    # Every user waits for its run by a long poll; one process in memory must have room for all of them.
    room = dict.fromkeys(("max_waiters", "max_watchers"), 2 * int(max(levels)))
    needs = Needs(workers=1, concurrency=int(max(levels)), settings=room)
    with session.target(needs) as target, target.client() as client:
        workflow = counted_call(counted=target.ledger is not None)
        client.apply(workflow)
        warm(target, client, workflow["name"], 5, {"ms": 50}, callers=int(max(levels)))
        for level in levels:
            users = int(level)
            measured, found = _at(session, target, client, workflow["name"], users, seconds=seconds, ms=call_ms)
            figures["levels"][users] = measured
            checks += found
    return Found(figures=figures, checks=checks)


def _at(
    session: Session, target: Target, client: Client, workflow: str, users: int, *, seconds: float, ms: int
) -> tuple[dict[str, Any], list[Check]]:
    name = f"{users} users"
    tag = f"{session.tag}-{users}"
    facts = {"workflow": workflow, "tag": tag, "ms": ms, "jitter": JITTER if target.ledger else 0.0}
    requests = session.swarm("call", target, users=users, seconds=seconds, phase=name, **facts)
    rows = drained(client, tag, within_seconds=60 + 4 * ms / 1000)
    runs = [r for r in requests if r.name == "run"]
    accepted = [r for r in requests if r.name == "submit" and r.status == 202]
    elapsed = elapsed_seconds(requests)
    rate = rows.count("succeeded") / elapsed
    run = quantiles(r.seconds for r in runs)
    # Of the time that users waited for their runs, how much the calls themselves took. By the rate it would be less:
    # in the elapsed time there is the end, when one user after the other has stopped.
    share = sum(r.facts["ms"] for r in runs) / 1000 / sum(r.seconds for r in runs)
    checks = [
        *all_there(f"{name}: ", rows, len(accepted), ledger=target.ledger),
        equal(f"{name}: failed requests", failures(requests), 0),
    ]
    # Shown, not claimed: SwarmKit's figures are of another machine, and the emulator's own limit is near at 100 users.
    # The comparison in turns is `peer-swarmkit`'s, that of one worker with its ideal is `workers`'.
    theirs = SWARMKIT_RUNS_PER_SECOND.get(users) if ms == 2_000 else None
    beside = "" if theirs is None else f" (SwarmKit's on another machine: {theirs:g})"
    checks.append(shown(f"{name}: runs per second", f"{rate:.3g}{beside}"))
    checks.append(shown(f"{name}: time of the calls ÷ time of the runs", f"{share:.3g}"))
    checks.append(shown(f"{name}: a run as its user saw it", run))
    return {
        "elapsed_seconds": elapsed,
        "runs_per_second": rate,
        "share_of_ideal": share,
        "run_seconds": run,
        "queue_wait_seconds": quantiles(rows.seconds("created_at", "started_at")),
        "submit_seconds": quantiles(r.seconds for r in accepted),
    }, checks
