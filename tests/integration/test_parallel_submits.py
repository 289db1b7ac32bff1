"""Many submits at once on the local stack: every one is answered, by few processes."""

from __future__ import annotations

import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from fanfold import Client
from fanfold.local.local_stack import LocalStack
from fanfold.local.turns import AT_ONCE
from tests.integration.test_local_stack import no_functions

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("own_emulator")]

PARALLEL = 60
FUNCTIONS = 2
"""Those of the API: each request may need the authorizer too."""

OTHERS = 2
"""What the schedule may call meanwhile."""


def processes_of(pid: int) -> set[int]:
    """The processes that an emulator started: one for each invocation that it carries out at the same time."""
    if Path("/proc/self/stat").exists():
        found = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
        parents = [(int(stat.split()[0]), int(stat.rpartition(")")[2].split()[1])) for stat in found]
    else:
        told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        parents = [(int(line.split()[0]), int(line.split()[1])) for line in told.splitlines()]
    return {child for child, parent in parents if parent == pid}


def submit(stack: LocalStack) -> int:
    answer = httpx.post(
        f"{stack.api_url}/v1/runs",
        json={"workflow": "tiny"},
        headers={"authorization": f"Bearer {stack.token}"},
        timeout=120,
    )
    return answer.status_code


def test_sixty_submits_at_once_are_all_answered_and_the_stack_is_usable_after_them(
    stack: LocalStack, client: Client
) -> None:
    assert stack.pid is not None
    client.queues()
    with no_functions(stack):  # what the runs need beside is bounded by their mappings
        before = processes_of(stack.pid)
        with ThreadPoolExecutor(PARALLEL) as pool:
            answers = Counter(pool.map(lambda _: submit(stack), range(PARALLEL)))
        started = processes_of(stack.pid) - before
    assert set(answers) <= {202, 429}, answers
    assert answers[202] >= AT_ONCE
    assert len(started) <= FUNCTIONS * AT_ONCE + OTHERS
    assert client.wait(client.submit("tiny", lane="high")["id"], timeout=60)["status"] == "succeeded"
