"""The driver's own limit: Locust against a server that does nothing. No other figure means more than this one.

Closed loops say how many requests a second it can send, open ones how late it sends them and how long nothing takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from loadtest.measure import quantiles
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.swarm import elapsed_seconds, failures
from loadtest.systems_under_test import Target
from loadtest.verdict import Check, at_most, equal, shown

USERS = Numbers((1, 10, 100))
RATES = Numbers((50, 200))
QUICK = {"seconds": 3.0, "users": Numbers((10,)), "rates": Numbers((100,))}

P99_SECONDS = 0.02
"""What nothing at all may take at the lowest rate: above that this box is too busy to time anything on."""


def driver(
    session: Session,
    *,
    users: Annotated[Numbers, "Users in a closed loop, one level after the other."] = USERS,
    rates: Annotated[Numbers, "Requests per second in an open loop, one after the other."] = RATES,
    seconds: Annotated[float, "How long each of them lasts."] = 10.0,
) -> Found:
    """The target plays no part; the server counts what it answered."""
    figures: dict[str, Any] = {}
    checks: list[Check] = []
    with _nothing() as (target, process):
        sent = []
        for level in users:
            requests = session.swarm("nothing", target, users=int(level), seconds=seconds, phase=f"{level:g} users")
            elapsed = elapsed_seconds(requests)
            figures[f"{level:g} users"] = {
                "requests_per_second": len(requests) / elapsed,
                "seconds": quantiles(r.seconds for r in requests),
            }
            checks.append(shown(f"{level:g} users: requests per second", f"{len(requests) / elapsed:.0f}"))
            sent += requests
        for rate in rates:
            name = f"{rate:g}/s"
            requests = session.swarm("nothing", target, users=1, seconds=seconds, phase=name, rate=rate)
            figures[name] = {"seconds": quantiles(r.seconds for r in requests)}
            checks.append(shown(f"{name}: an answer, from the intended time", figures[name]["seconds"]))
            sent += requests
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        answered = json.loads(process.stdout.readline())["answered"]
    idle = figures[f"{rates[0]:g}/s"]["seconds"].p99
    checks = [
        equal("failed requests", failures(sent), 0),
        equal("requests by the server's count", answered, len(sent)),
        session.timed(at_most(f"p99 of nothing at {rates[0]:g}/s", idle, P99_SECONDS, " s")),
        *checks,
    ]
    return Found(figures=figures, checks=checks)


@contextmanager
def _nothing() -> Iterator[tuple[Target, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "loadtest.noop"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Target(kind="nothing", url=json.loads(process.stdout.readline())["url"], token=None), process
        finally:
            process.terminate()
