"""FlowForge's benchmark: 10 users, 60 s, each triggers a diamond and follows it to its end."""

from __future__ import annotations

from typing import Annotated

from loadtest.counting import all_there, drained
from loadtest.measure import quantiles
from loadtest.scenario import Found, Session
from loadtest.swarm import elapsed_seconds, failures
from loadtest.systems_under_test import Needs
from loadtest.verdict import at_least, at_most, equal, shown
from loadtest.warmup import warm
from loadtest.workflows import DIAMOND

QUICK = {"seconds": 10.0}

FLOWFORGE_RUNS_PER_SECOND = 2.54
FLOWFORGE_P50_SECONDS = 3.5
"""Its best published figures, with its poll interval at 0.25 s."""


def diamond(
    session: Session,
    *,
    users: Annotated[int, "Users at once."] = 10,
    seconds: Annotated[float, "How long they go on."] = 60.0,
) -> Found:
    """Users in a closed loop on one worker process; every accepted run is counted by its row afterwards."""
    with session.target(Needs(workers=1)) as target, target.client() as client:
        client.apply(DIAMOND)
        warm(target, client, DIAMOND["name"], 5)
        facts = {"workflow": DIAMOND["name"], "tag": session.tag, "looks": True}
        requests = session.swarm("call", target, users=users, seconds=seconds, **facts)
        rows = drained(client, session.tag, within_seconds=60)
    accepted = sum(request.name == "submit" and request.status == 202 for request in requests)
    elapsed = elapsed_seconds(requests)
    rate = rows.count("succeeded") / elapsed
    run, trigger, status = (
        quantiles(request.seconds for request in requests if request.name == name)
        for name in ("run", "submit", "status")
    )
    return Found(
        figures={
            "users": users,
            "elapsed_seconds": elapsed,
            "runs_per_second": rate,
            "run_seconds": run,
            "trigger_seconds": trigger,
            "status_seconds": status,
        },
        checks=[
            *all_there("", rows, accepted),
            equal("failed requests", failures(requests), 0),
            session.timed(at_least("runs per second against FlowForge's best", rate, FLOWFORGE_RUNS_PER_SECOND, "/s")),
            session.timed(at_most("median from trigger to end against its best", run.p50, FLOWFORGE_P50_SECONDS, " s")),
            shown("run", run),
            shown("trigger", trigger),
            shown("status read", status),
        ],
    )
