"""How many of our files one call enters, from the handler on: a reader follows each of them. The figures only shrink.

Counted over services in memory, once everything is warm, by a profile hook: each file of the library that a function is
called in. The in-memory adapters are among them, in place of those on AWS, with the codec that both share.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import fanfold
from fanfold.service.worker.dispositions import Ack
from tests.support.http import Http
from tests.support.virtual import virtually
from tests.support.world import LANE, World

LIBRARY = Path(fanfold.__file__).parent
WALKS = {"submit": 30, "read": 22, "pause": 42, "message": 51}
"""Aims: a submit 15, a worker's message with one step 28."""

LINES = 300
"""A module of the service that is longer has more than one subject."""

ONE_STEP = {"name": "flow", "steps": {"a": {"task": "core.echo"}}}


@contextmanager
def walk() -> Iterator[set[str]]:
    """The library's files that functions are called in within."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{LIBRARY}/"):
            entered.add(frame.f_code.co_filename.removeprefix(f"{LIBRARY}/"))

    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)


def held(name: str, entered: set[str]) -> None:
    files = "\n".join(sorted(entered))
    assert len(entered) <= WALKS[name], f"a {name} enters {len(entered)} files:\n{files}"


async def answered(http: Http, *call: Any, status: int) -> tuple[set[str], Any]:
    """What one call enters, and its answer."""
    event = http.event(*call)
    with walk() as entered:
        answer = await http.app.answer(event, None)
    assert answer["statusCode"] == status, answer
    return entered, json.loads(answer["body"])


@virtually
async def test_calls_and_messages_enter_no_more_of_our_files_than_they_did() -> None:
    world = World()
    http = Http(services=world.services)
    worker = world.runner()
    await answered(http, "PUT", "/v1/workflows/flow", ONE_STEP, status=201)
    walks: dict[str, set[str]] = {}
    for _ in range(2):  # the second time, everything is loaded
        walks["submit"], accepted = await answered(http, "POST", "/v1/runs", {"workflow": "flow"}, status=202)
        walks["read"], _ = await answered(http, "GET", f"/v1/runs/{accepted['id']}", status=200)
        (message,) = await world.queue.receive(LANE, limit=1, wait_seconds=1, visibility_seconds=60)
        with walk() as walks["message"]:
            disposition = await worker.handle(message)
        assert disposition == Ack()
        _, ended = await answered(http, "GET", f"/v1/runs/{accepted['id']}", status=200)
        assert ended["status"] == "succeeded"
        _, other = await answered(http, "POST", "/v1/runs", {"workflow": "flow"}, status=202)
        walks["pause"], _ = await answered(http, "POST", f"/v1/runs/{other['id']}/pause", status=202)
        await world.queue.delete(await world.queue.receive(LANE, limit=1, wait_seconds=1, visibility_seconds=60))
    for name, entered in walks.items():
        held(name, entered)


def test_no_module_of_the_service_is_longer_than_one_subject_needs() -> None:
    modules = {path: len(path.read_text().splitlines()) for path in (LIBRARY / "service").rglob("*.py")}
    assert len(modules) > 80
    assert {str(path): lines for path, lines in modules.items() if lines > LINES} == {}
