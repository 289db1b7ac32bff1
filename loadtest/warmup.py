"""Warm-up: what the first requests and runs pay is not what is measured."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fanfold import Client
from loadtest.counting import tags_of
from loadtest.systems_under_test import Target

TAG = "load=warm"
SECONDS = 120.0
"""A first call of a function takes seconds on a busy emulator."""

CALLERS = 8
"""Requests at the same time, where a scenario says nothing else."""

APART_SECONDS = 0.5
"""Between one caller and the next: processes that begin all at once are all too late."""


def warm(
    target: Target, client: Client, workflow: str, runs: int, given: Any = None, *, callers: int = CALLERS
) -> None:
    """So many runs to their end; on an emulator also so many requests at once.

    There a process of the API begins when somebody asks while all others are busy: who will be asked by many at once
    has to have been before. Raises TimeoutError, or RuntimeError when a run does not succeed.
    """
    tags = tags_of(TAG)
    submitted = [client.submit(workflow, given, tags=tags)["id"] for _ in range(runs)]
    if target.stack is not None:
        submitted.append(_held(client, workflow, given, tags=tags, callers=callers))
    for run_id in submitted:
        ended = client.wait(run_id, timeout=SECONDS)
        if ended["status"] != "succeeded":
            raise RuntimeError(f"a run to warm up ended as {ended['status']}: {ended['error']}")


def _held(client: Client, workflow: str, given: Any, *, tags: dict[str, str], callers: int) -> str:
    """Have callers wait for one run, which is not due before all of them do; gives its id."""
    apart = [number * APART_SECONDS for number in range(callers)]
    run_id = client.submit(workflow, given, tags=tags, delay=round(apart[-1]) + 2)["id"]

    def wait(seconds: float) -> None:
        time.sleep(seconds)
        client.wait(run_id, timeout=apart[-1] + SECONDS)

    with ThreadPoolExecutor(callers) as threads:
        for _ in threads.map(wait, apart):
            pass  # what one raises is raised here
    return run_id
