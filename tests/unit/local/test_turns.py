"""Calls of the deployed API take turns in front of the embedded emulator: so many at once, none forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fanfold.client.base_client import READ_TIMEOUT_SECONDS
from fanfold.local.guard import Message, Receive, Scope, Send
from fanfold.local.turns import HELD_TIMEOUT_SECONDS, TURN_TIMEOUT_SECONDS, taking_turns
from fanfold.service.api.request_models import MAX_WAIT_SECONDS

CALL = "/_aws/execute-api/abc/$default/v1/runs"


class Emulator:
    """Answers 202 once it is let; remembers how many it had in hands at most."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.now = self.most = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if "fails" in scope["path"]:
                raise RuntimeError("it fails")
            await self.let.wait()
        finally:
            self.now -= 1
        await send({"type": "http.response.start", "status": 202, "headers": []})


def a_call(path: str = CALL, query: bytes = b"", *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": list(headers)}


async def status(app: Any, scope: Scope) -> int:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nobody asks")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("scope", "most"),
    [
        (a_call(), 3),
        (a_call("/restapis/abc/api/_user_request_/v1/runs"), 3),
        (a_call(query=b"wait=25"), 5),
        (a_call(CALL, b"", (b"Accept", b"text/event-stream")), 5),
        (a_call("/_aws/execute-api/abc/$default/v1/stream/t"), 5),
        (a_call("/2015-03-31/functions/f/invocations"), 60),
        ({"type": "websocket", "path": CALL, "headers": []}, 60),
    ],
    ids=["submit", "submit on REST", "wait", "events", "stream", "other calls of AWS", "web socket"],
)
def test_only_so_many_of_sixty_are_carried_out_at_once_and_all_are_answered(scope: Scope, most: int) -> None:
    async def play() -> None:
        emulator = Emulator()
        app = taking_turns(emulator, at_once=3, held_at_once=5)
        calls = [asyncio.create_task(status(app, scope)) for _ in range(60)]
        await settled()
        assert emulator.now == most
        emulator.let.set()
        assert await asyncio.gather(*calls) == [202] * 60
        assert emulator.most == most

    asyncio.run(play())


def test_calls_that_wait_leave_room_for_those_that_do_not() -> None:
    async def play() -> None:
        emulator = Emulator()
        app = taking_turns(emulator, at_once=1, held_at_once=1)
        waits = [asyncio.create_task(status(app, a_call(query=b"wait=25"))) for _ in range(3)]
        await settled()
        submit = asyncio.create_task(status(app, a_call()))
        await settled()
        assert emulator.now == 2
        emulator.let.set()
        assert await asyncio.gather(submit, *waits) == [202] * 4

    asyncio.run(play())


@pytest.mark.parametrize("query", [b"", b"wait=25"], ids=["quick", "held"])
def test_a_call_whose_turn_does_not_come_is_answered_as_refused_and_the_next_has_its_turn(query: bytes) -> None:
    async def play() -> None:
        emulator = Emulator()
        timeout = {"held_timeout_seconds" if query else "timeout_seconds": 0.01}
        app = taking_turns(emulator, at_once=1, held_at_once=1, **timeout)
        first = asyncio.create_task(status(app, a_call(query=query)))
        await settled()
        assert await status(app, a_call(query=query)) == 429
        emulator.let.set()
        assert await first == 202
        assert await status(app, a_call(query=query)) == 202

    asyncio.run(play())


def test_a_call_waits_for_its_turn_no_longer_than_its_client_waits_for_it() -> None:
    assert TURN_TIMEOUT_SECONDS < 30
    assert HELD_TIMEOUT_SECONDS + MAX_WAIT_SECONDS < READ_TIMEOUT_SECONDS


def test_a_call_that_fails_or_is_given_up_returns_its_turn() -> None:
    async def play() -> None:
        emulator = Emulator()
        app = taking_turns(emulator, at_once=1)
        with pytest.raises(RuntimeError):
            await status(app, a_call(f"{CALL}/fails"))
        given_up = asyncio.create_task(status(app, a_call()))
        waiting = asyncio.create_task(status(app, a_call()))
        await settled()
        for task in (waiting, given_up):
            task.cancel()
        await asyncio.gather(given_up, waiting, return_exceptions=True)
        emulator.let.set()
        assert await status(app, a_call()) == 202

    asyncio.run(play())
