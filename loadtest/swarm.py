"""Locust as a process of its own: users of one locustfile against a target, every request a row of raw data."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.systems_under_test import Target

LOCUSTS = Path(__file__).resolve().parent / "locusts"
STOP_SECONDS = 60
"""What a user may still take for the request it is in when the time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as the driver saw it: `begun` in seconds since the epoch, `seconds` until its answer."""

    name: str
    begun: float
    seconds: float
    status: int
    error: str
    facts: Mapping[str, Any]


def swarm(
    locustfile: str,
    target: Target,
    *,
    users: int,
    seconds: float,
    folder: Path,
    spawn_rate: float | None = None,
    facts: Mapping[str, Any] | None = None,
) -> list[Request]:
    """Run so many users for so long (Locust counts whole seconds) and give all their requests, in the order they ended.

    `facts` reach the locustfile as JSON in `FANFOLD_LOAD`. Raises RuntimeError with the end of its log when Locust
    itself fails; a request that fails is a row like any other.
    """
    name = f"{locustfile}-{users}-{uuid.uuid4().hex[:6]}"
    raw = folder / f"{name}.jsonl"
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTS / f"{locustfile}.py"), "--headless", "--only-summary"]
    command += ["--host", target.url, "--users", str(users), "--spawn-rate", str(spawn_rate or users)]
    command += ["--run-time", f"{math.ceil(seconds)}s", "--stop-timeout", str(STOP_SECONDS)]
    command += ["--exit-code-on-error", "0"]
    environ = os.environ | {
        "FANFOLD_TOKEN": target.token or "",
        "FANFOLD_LOAD": json.dumps({**(facts or {}), "seconds": seconds, "raw": str(raw)}),
    }
    with (folder / f"{name}.log").open("wb") as log:
        ended = subprocess.run(
            command,
            cwd=LOCUSTS.parent.parent,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=seconds + 2 * STOP_SECONDS,
            check=False,
        )
    if ended.returncode != 0:
        last = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-2_000:]
        raise RuntimeError(f"Locust failed with {ended.returncode}: {last}")
    return list(requests_in(raw))


def elapsed_seconds(requests: Sequence[Request]) -> float:
    """The time it really took: from when the first request was to be sent to when the last one was answered."""
    return max(r.begun + r.seconds for r in requests) - min(r.begun for r in requests)


def failures(requests: Iterable[Request]) -> int:
    """How many were not answered, or with an error."""
    return sum(bool(request.error) or request.status >= 400 for request in requests)


def requests_in(raw: Path) -> Iterator[Request]:
    """The requests a locustfile has written down."""
    with raw.open(encoding="utf-8") as lines:
        for line in lines:
            yield Request(**json.loads(line))
