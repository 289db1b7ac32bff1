"""Fixed rates: diamonds sent by the clock, at one rate after the other, each timed from when it was meant to be sent.

The lowest rate comes first: it is the idle system, whose latency is held against the target.
"""

from __future__ import annotations

from typing import Annotated, Any

from fanfold import Client
from loadtest.counting import all_there, drained
from loadtest.measure import quantiles
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.swarm import elapsed_seconds
from loadtest.systems_under_test import Needs, Target
from loadtest.verdict import Check, at_most, equal, shown
from loadtest.warmup import warm
from loadtest.workflows import COUNTED_DIAMOND, DIAMOND

RATES = Numbers((1, 5, 10, 20))
QUICK = {"rates": Numbers((2, 5)), "seconds": 6.0}

SUBMITS = 8.0
"""In the time of so many submits an idle system carries a diamond of empty tasks to its end."""


def open_loop(
    session: Session,
    *,
    rates: Annotated[Numbers, "Submits per second, one after the other."] = RATES,
    seconds: Annotated[float, "How long each rate lasts."] = 30.0,
) -> Found:
    """Diamonds on one worker process; rows and executions are counted after each rate."""
    figures: dict[str, Any] = {}
    checks: list[Check] = []
    with session.target(Needs(workers=1, settings={"submits_per_minute": 0})) as target, target.client() as client:
        workflow = COUNTED_DIAMOND if target.ledger else DIAMOND
        client.apply(workflow)
        warm(target, client, workflow["name"], 5)
        for rate in rates:
            name = f"{rate:g}/s"
            figures[name], found = _at(session, target, client, workflow["name"], rate=rate, seconds=seconds)
            checks += [*found, shown(f"{name}: submit, from the intended time", figures[name]["submit_seconds"])]
    idle = figures[f"{rates[0]:g}/s"]
    submits = idle["run_seconds"].p95 / idle["submit_seconds"].p50
    checks.append(session.timed(at_most(f"p95 of a diamond ÷ median of a submit at {rates[0]:g}/s", submits, SUBMITS)))
    return Found(figures=figures, checks=checks)


def _at(
    session: Session, target: Target, client: Client, workflow: str, *, rate: float, seconds: float
) -> tuple[dict[str, Any], list[Check]]:
    name = f"{rate:g}/s"
    tag = f"{session.tag}-{rate:g}"
    requests = session.swarm(
        "rate", target, users=1, seconds=seconds, phase=name, workflow=workflow, tag=tag, rate=rate
    )
    rows = drained(client, tag, within_seconds=max(120, 4 * seconds))
    session.keep(name, rows.listed)
    accepted = [request for request in requests if request.status == 202]
    elapsed = elapsed_seconds(requests)
    checks = [
        *all_there(f"{name}: ", rows, len(accepted), ledger=target.ledger, steps=len(DIAMOND["steps"])),
        equal(f"{name}: requests that were not accepted", len(requests) - len(accepted), 0),
        equal(f"{name}: requests of the schedule", len(requests), round(rate * seconds)),
    ]
    run, submit = quantiles(rows.seconds("created_at", "finished_at")), quantiles(r.seconds for r in requests)
    checks.append(shown(f"{name}: a diamond by its own times", run))
    return {
        "elapsed_seconds": elapsed,
        "submits_per_second": len(requests) / elapsed,
        "submit_seconds": submit,
        "run_seconds": run,
        "queue_wait_seconds": quantiles(rows.seconds("created_at", "started_at")),
    }, checks
