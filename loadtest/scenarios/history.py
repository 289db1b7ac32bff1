"""Does a list or a read depend on how many runs there ever were? The same requests at 1,000, 20,000 and 1,000,000.

In memory only: there the service says what each answer took to read. One service for each length of the past, asked
in turns by one user; what a page reads must be the same, and so must its time.
"""

from __future__ import annotations

import random
import statistics
from contextlib import ExitStack
from typing import Annotated, Any

from loadtest.measure import quantiles
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.server import CALLS_HEADER, UNITS_HEADER
from loadtest.swarm import Request
from loadtest.synthetic_history import past_id
from loadtest.systems_under_test import Needs, Target
from loadtest.targets import Goal
from loadtest.verdict import Check, at_most, equal, shown, toward

OLD = Numbers((1_000, 20_000, 1_000_000))
QUICK = {"turns": 15}

SLOWER_AT_MOST = 1.2
WARM_TURNS = 3
TIMEOUT_SECONDS = 900.0
"""The user ends when all is asked."""
STATUS_READS = 20
"""Different old runs that are read."""

PAGES = {
    "all, first page": "/v1/runs",
    "all, page 2": "/v1/runs",
    "failed": "/v1/runs?status=failed",
    "by workflow": "/v1/runs?workflow=load-past",
    "active": "/v1/runs?status=queued,running,waiting,paused",
}


def history(
    session: Session,
    *,
    old: Annotated[Numbers, "Ended runs that are there, one service for each number."] = OLD,
    turns: Annotated[int, "How often each service is asked each question."] = 150,
) -> Found:
    """Equal calls and read units on every page and read; medians within a fifth of each other."""
    if session.kind != "memory":
        raise ValueError("history needs --target memory: only there a service says what an answer took to read")
    with ExitStack() as up:
        services: dict[str, Target] = {}
        for count in old:
            services[str(int(count))] = up.enter_context(session.target(Needs(past=int(count))))
        questions = _questions(services)
        facts = {
            "services": {name: target.url for name, target in services.items()},
            "questions": questions,
            "turns": turns + WARM_TURNS,
            "tag": session.tag,
            "headers": [CALLS_HEADER, UNITS_HEADER],
        }
        first = next(iter(services.values()))
        requests = session.swarm("pages", first, users=1, seconds=TIMEOUT_SECONDS, **facts)
    warm = [request for request in requests if request.facts["turn"] >= WARM_TURNS]
    figures: dict[str, Any] = {}
    checks = [
        equal("requests answered with 200", sum(r.status == 200 for r in requests), len(requests)),
        equal("requests in all", len(requests), (turns + WARM_TURNS) * len(questions) * len(services)),
    ]
    for question in questions:
        figures[question], found = _compared(session, question, [r for r in warm if r.name == question])
        checks += found
    slowest = max(ratio for of in figures.values() for ratio in of["ratios"].values())
    unequal = sum(reads != of["reads"][str(int(old[0]))] for of in figures.values() for reads in of["reads"].values())
    checks += toward(Goal.HISTORY, equal("pages and reads that take other calls or units", unequal, 0))
    slower = at_most("largest ratio of times of a page or read (medians of pairs)", slowest, SLOWER_AT_MOST)
    checks += toward(Goal.HISTORY, session.timed(slower), n=turns)
    return Found(figures=figures, checks=checks)


def _questions(services: dict[str, Target]) -> dict[str, dict[str, list[str]]]:
    """For each question and service the addresses to ask, any of them."""
    asked: dict[str, dict[str, list[str]]] = {name: {} for name in [*PAGES, "status read"]}
    rng = random.Random(1)
    for name, target in services.items():
        for question, path in PAGES.items():
            asked[question][name] = [path]
        with target.client() as client:
            listed = client.runs(page=50)
            cursor = [next(listed)["cursor"] for _ in range(50)][-1]
        asked["all, page 2"][name] = [f"/v1/runs?cursor={cursor}"]
        numbers = [rng.randrange(int(name)) for _ in range(STATUS_READS)]
        asked["status read"][name] = [f"/v1/runs/{past_id(number)}" for number in numbers]
    return asked


def _compared(session: Session, question: str, requests: list[Request]) -> tuple[dict[str, Any], list[Check]]:
    """What one question took at each length, and the claims that it is the same."""
    services = sorted({r.facts["service"] for r in requests}, key=int)
    of = {name: [r for r in requests if r.facts["service"] == name] for name in services}
    reads = {name: sorted({(r.facts[CALLS_HEADER], r.facts[UNITS_HEADER]) for r in of[name]}) for name in services}
    seconds = {name: quantiles(r.seconds for r in of[name]) for name in services}
    first, *others = services
    # Each turn asks all of them within the same moment: a neighbour's noise hits both sides of a ratio.
    by_turn = {(r.facts["turn"], r.facts["service"]): r.seconds for r in requests}
    turns = sorted({turn for turn, _ in by_turn})
    ratios = {name: statistics.median(by_turn[turn, name] / by_turn[turn, first] for turn in turns) for name in others}
    checks = [equal(f"{question}: calls and units at {name} old runs", reads[name], reads[first]) for name in others]
    for name, ratio in ratios.items():
        what = f"{question}: time at {name} old runs ÷ at {first} (median of pairs)"
        checks.append(session.timed(at_most(what, ratio, SLOWER_AT_MOST)))
    checks.append(
        shown(f"{question}: median seconds", {name: f"{q.p50:.4f} (n = {q.n})" for name, q in seconds.items()})
    )
    return {"seconds": seconds, "reads": {name: list(reads[name]) for name in services}, "ratios": ratios}, checks
