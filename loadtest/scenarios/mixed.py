"""Neighbours: two pools, three lanes, two tenants. How long does the quiet one wait while the noisy one pours?

Alone first; then with the other pool full; then with its own pool full of a worse lane; last with its own lane full,
where only SQS's fair queues help, which no emulator has: that one is shown and claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from loadtest.counting import Rows, drained, executed, rows
from loadtest.measure import Quantiles, quantiles
from loadtest.scenario import Found, Session
from loadtest.swarm import Request, failures
from loadtest.systems_under_test import Needs, Target
from loadtest.verdict import Check, at_most, equal, shown
from loadtest.warmup import warm
from loadtest.workflows import counted_call, in_class

QUICK = {"seconds": 4.0, "noise": 30, "rate": 3.0}

CONCURRENCY = 8
QUIET_MS = 50
NOISY_MS = 400
SLACK_SECONDS = 0.15
"""What a wait may differ by without meaning anything: receives, and this box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Who else is there: the noisy tenant in a class and a lane; nobody when `noisy_class` is empty.

    `worst_extra_ms` is how much longer the quiet tenant may wait than alone; None claims nothing.
    """

    name: str
    noisy_class: str = ""
    noisy_lane: str = "normal"
    worst_extra_ms: float | None = None


PHASES = (
    Phase(name="alone"),
    # Pools share nothing but the box.
    Phase(name="other pool full", noisy_class="harness", worst_extra_ms=0),
    # Places are not taken away from whom they were given to: one noisy run's length is the price of a full pool.
    Phase(name="worse lane full", noisy_class="model", noisy_lane="low", worst_extra_ms=NOISY_MS),
    Phase(name="own lane full", noisy_class="model", noisy_lane="high"),
)


def mixed(
    session: Session,
    *,
    seconds: Annotated[float, "How long the quiet tenant goes on in each phase."] = 20.0,
    rate: Annotated[float, "Its submits per second, in lane high."] = 5.0,
    noise: Annotated[int, "Runs the noisy tenant sends at once."] = 300,
) -> Found:
    """One worker process for each pool; every accepted run of both tenants is counted by its row."""
    figures: dict[str, Any] = {}
    checks: list[Check] = []
    needs = Needs(
        workers=1, concurrency=CONCURRENCY, pools={"harness": CONCURRENCY}, settings={"submits_per_minute": 0}
    )
    with session.target(needs) as target:
        quiet, noisy = target.token_of("quiet"), target.token_of("noisy", tenant="noisy")
        if quiet == noisy:
            raise ValueError("mixed needs two tenants, and a URL comes with one token: --target memory or emulator")
        with target.client(token=quiet) as client, target.client(token=noisy) as other:
            document = counted_call(counted=target.ledger is not None)
            for each in (client, other):
                for class_name in ("model", "harness"):
                    each.apply(in_class(document, class_name))
                    warm(target, each, f"{document['name']}-{class_name}", 3, {"ms": 10}, callers=2)
            for phase in PHASES:
                facts = _facts(session, phase, document["name"], tokens=(quiet, noisy), rate=rate, noise=noise)
                users = 1 + len(facts["noisy"])
                requests = session.swarm("tenants", target, users=users, seconds=seconds, phase=phase.name, **facts)
                own = drained(client, facts["quiet"]["tag"], within_seconds=60 + noise)
                others = drained(other, f"{session.tag}-noisy-{PHASES.index(phase)}", within_seconds=60 + noise)
                checks += _counted(phase, target, own, others, requests=requests, noise=noise)
                figures[phase.name] = quantiles(own.seconds("created_at", "started_at"))
            seen = len(rows(client, f"{session.tag}-noisy-1").listed)
    checks.append(equal("rows of the noisy tenant that the quiet one sees", seen, 0))
    alone: Quantiles = figures["alone"]
    for phase in PHASES:
        wait: Quantiles = figures[phase.name]
        if phase.worst_extra_ms is not None:
            bound = alone.p95 + phase.worst_extra_ms / 1000 + SLACK_SECONDS
            what = f"{phase.name}: p95 of the quiet tenant's wait"
            checks.append(session.timed(at_most(what, wait.p95, round(bound, 3), " s")))
        checks.append(shown(f"{phase.name}: the quiet tenant's wait", wait))
    return Found(figures={"queue_wait_seconds": figures}, checks=checks)


def _facts(
    session: Session, phase: Phase, workflow: str, *, tokens: tuple[str | None, str | None], rate: float, noise: int
) -> dict[str, Any]:
    number = PHASES.index(phase)
    quiet = {
        "workflow": f"{workflow}-model",
        "lane": "high",
        "ms": QUIET_MS,
        "rate": rate,
        "token": tokens[0],
        "tag": f"{session.tag}-quiet-{number}",
    }
    noisy = {
        "workflow": f"{workflow}-{phase.noisy_class}",
        "lane": phase.noisy_lane,
        "ms": NOISY_MS,
        "runs": noise,
        "token": tokens[1],
        "tag": f"{session.tag}-noisy-{number}",
    }
    return {"quiet": quiet, "noisy": [noisy] if phase.noisy_class else []}


def _counted(
    phase: Phase, target: Target, own: Rows, others: Rows, *, requests: list[Request], noise: int
) -> list[Check]:
    accepted = sum(request.name == "quiet" and request.status == 202 for request in requests)
    sent = noise if phase.noisy_class else 0
    checks = [
        equal(f"{phase.name}: failed requests", failures(requests), 0),
        equal(f"{phase.name}: the quiet tenant's runs that succeeded", own.count("succeeded"), accepted),
        equal(f"{phase.name}: the noisy tenant's runs that succeeded", others.count("succeeded"), sent),
    ]
    if target.ledger:
        counted = executed(target.ledger, own) + executed(target.ledger, others)
        checks.append(equal(f"{phase.name}: executions", counted, accepted + sent))
    return checks
