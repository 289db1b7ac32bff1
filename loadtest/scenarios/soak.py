"""Half an hour, or hours, of diamonds by the clock: memory and descriptors stay flat, counters equal rows at the end.

python -m loadtest soak --seconds 21600     # six hours
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from loadtest.counting import all_there, drained, rows
from loadtest.measure import quantiles
from loadtest.sampling import Sample, functions_of, sampled
from loadtest.scenario import Found, Session
from loadtest.swarm import elapsed_seconds
from loadtest.systems_under_test import Needs
from loadtest.targets import Goal
from loadtest.verdict import Check, at_most, equal, shown, toward
from loadtest.warmup import warm
from loadtest.workflows import COUNTED_DIAMOND, DIAMOND

QUICK = {"seconds": 15.0, "rate": 4.0}

SAMPLES = 600
GROWTH_AT_MOST = 1.05
SLACK_MB = 2.0
SLACK_DESCRIPTORS = 4
"""Connections that happen to be open."""


def soak(
    session: Session,
    *,
    seconds: Annotated[float, "How long."] = 1_800.0,
    rate: Annotated[float, "Diamonds per second."] = 5.0,
) -> Found:
    """One worker process; the API's processes are watched as well where they are on this machine."""
    with session.target(Needs(workers=1)) as target, target.client() as client:
        workflow = COUNTED_DIAMOND if target.ledger else DIAMOND
        client.apply(workflow)
        warm(target, client, workflow["name"], 20)
        processes = dict(target.processes)
        if target.stack is not None:
            processes |= functions_of(target.stack, "api")
        facts = {"workflow": workflow["name"], "tag": session.tag, "rate": rate}
        with sampled(processes, every_seconds=max(0.5, seconds / SAMPLES)) as samples:
            requests = session.swarm("rate", target, users=1, seconds=seconds, **facts)
        ended = drained(client, session.tag, within_seconds=300)
        slots = {queue["class"]: queue["queued"] for queue in client.queues()}
        waiting = rows(client, session.tag, status="queued").total
    for name, taken in samples.items():
        for sample in taken:
            session.recorder.row(
                process=name, at=sample.at, resident_mb=sample.resident_mb, descriptors=sample.descriptors
            )
    accepted = sum(request.status == 202 for request in requests)
    run = quantiles(ended.seconds("created_at", "finished_at"))
    checks = [
        equal("submits that were not accepted", len(requests) - accepted, 0),
        *all_there("", ended, accepted, ledger=target.ledger, steps=len(DIAMOND["steps"])),
        *toward(Goal.SOAK, equal("slots taken at the end, of all classes", sum(slots.values()), waiting), n=accepted),
        shown("a diamond by its own times", run),
    ]
    elapsed = elapsed_seconds(requests)
    figures: dict[str, Any] = {
        "elapsed_seconds": elapsed,
        "runs": accepted,
        "run_seconds": run,
        "submit_seconds": quantiles(r.seconds for r in requests),
    }
    grown = 0
    for name, taken in samples.items():
        figures[name], found = _flat(session, name, taken, keeps_rows=target.kind == "memory")
        checks += found
        grown += sum(not check.holds for check in found)
    checks += toward(Goal.SOAK, session.timed(equal("processes' memory or descriptors that grew", grown, 0)))
    return Found(figures=figures, checks=checks)


def _flat(
    session: Session, name: str, taken: Sequence[Sample], *, keeps_rows: bool
) -> tuple[Mapping[str, float], list[Check]]:
    """The last quarter against the second: the first is still filling caches.

    `keeps_rows`: the process is the store as well, and what it keeps grows by every run.
    """
    if len(taken) < 8:
        return {}, [shown(f"{name}: samples, too few to say anything", len(taken))]
    quarter = len(taken) // 4
    early, late = taken[quarter : 2 * quarter], taken[-quarter:]
    mb = [statistics.median(sample.resident_mb for sample in part) for part in (early, late)]
    descriptors = [max(sample.descriptors for sample in part) for part in (early, late)]
    memory = at_most(f"{name}: memory in the last quarter", mb[1], mb[0] * GROWTH_AT_MOST + SLACK_MB, " MB")
    grown = f"{mb[0]:.1f} → {mb[1]:.1f} MB"
    checks = [
        shown(memory.what, f"{grown}; it keeps every row") if keeps_rows else session.timed(memory),
        session.timed(
            at_most(f"{name}: descriptors in the last quarter", descriptors[1], descriptors[0] + SLACK_DESCRIPTORS)
        ),
    ]
    measured = {
        "early_mb": mb[0],
        "late_mb": mb[1],
        "early_descriptors": descriptors[0],
        "late_descriptors": descriptors[1],
        "processor_seconds": taken[-1].processor_seconds - taken[0].processor_seconds,
    }
    return measured, checks
