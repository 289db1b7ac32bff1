"""Warm-up: what the first requests and runs pay is not what is measured."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fanfold import Client

TAG = "load=warm"
SECONDS = 120.0
"""A first call of a function takes seconds on a busy emulator."""

HOLD_SECONDS = 2
CALLERS = 8
"""Requests at the same time, where a scenario says nothing else."""


def warm(client: Client, workflow: str, runs: int, given: Any = None, *, callers: int = CALLERS) -> None:
    """So many runs to their end, seen by several callers at once.

    A function's process begins when somebody asks while all others are busy: who will be asked by many at once has to
    have been before. Raises TimeoutError, or RuntimeError when one does not succeed.
    """
    key, _, value = TAG.partition("=")
    tags = {key: value}
    with ThreadPoolExecutor(callers) as threads:
        # A run that is not due yet: each caller's answer is held, so each gets a process of its own.
        held = client.submit(workflow, given, tags=tags, delay=2 * HOLD_SECONDS)["id"]
        for _ in threads.map(lambda _: client.get(held, wait=HOLD_SECONDS), range(callers)):
            pass  # what one raises is raised here
        submitted = list(threads.map(lambda _: client.submit(workflow, given, tags=tags)["id"], range(runs)))
        for run_id in [held, *submitted]:
            ended = client.wait(run_id, timeout=SECONDS)
            if ended["status"] != "succeeded":
                raise RuntimeError(f"a run to warm up ended as {ended['status']}: {ended['error']}")
