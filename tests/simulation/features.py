"""Waits, maps and fails for the random workflows of a schedule: some of a document's steps become one."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from tests.support.clock import START

SIGNALS = ("go", "ok")
"""The signals' names. Few, so that waits of one name meet in a run."""

FAIL = {"message": "no more of ${input.marker}", "type": "refused"}
"""What a step ends its run with, where it does."""

OF_TASKS = ("task", "input", "retry", "timeout")


def enriched(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """The document, some of whose steps wait, map or fail now."""
    steps = {name: _changed(rng, body) for name, body in document["steps"].items()}
    # A wait's own time is at most its run's.
    time = {"timeout": "450s"} if "timeout" in document else {}
    return {**document, "steps": steps, **time}


def _changed(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    lot = rng.random()
    if lot < 0.3:
        return {**{key: value for key, value in body.items() if key not in OF_TASKS}, "wait": _wait(rng)}
    if lot < 0.55:
        return {**{key: value for key, value in body.items() if key not in ("task", "input")}, "map": _map(rng, body)}
    if lot > 0.96:
        return {**{key: value for key, value in body.items() if key not in (*OF_TASKS, "on_failure")}, "fail": FAIL}
    return body


def _wait(rng: random.Random) -> dict[str, Any]:
    match rng.choice(("for", "until", "signal", "signal")):
        case "for":
            return {"for": rng.choice(("1s", "4s", "30s", "150s", "400s"))}
        case "until":
            moment = START + timedelta(seconds=rng.choice((0, 30, 100, 300)))
            return {"until": moment.isoformat()}
        case _:
            wait: dict[str, Any] = {"signal": rng.choice(SIGNALS)}
            if rng.random() < 0.6:
                wait["timeout"] = rng.choice(("5s", "60s", "300s"))
            return wait


def _map(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    items = rng.choice((0, 1, 2, 5, 9))
    given = {key: value for key, value in body["input"].items() if key not in ("fail", "after", "final", "emit")}
    given["ms"] = min(given["ms"], 4_000)
    if items and rng.random() < 0.3:
        given["bad"] = rng.sample(range(items), k=rng.choice((1, min(2, items))))
        given["bad_times"] = rng.choice((1, 2, 6))
    found: dict[str, Any] = {
        "over": [f"i{number}" for number in range(items)],
        "task": "sim.work",
        "input": {**given, "item": "${item}"},
        "max_concurrency": rng.choice((1, 3, 12)),
    }
    if rng.random() < 0.4:
        found["tolerate"] = rng.choice(({"count": 1}, {"percent": 50}, {"percent": 100}))
    if rng.random() < 0.3:
        found["via"] = rng.choice(("inline", "stepfunctions"))
    return found
