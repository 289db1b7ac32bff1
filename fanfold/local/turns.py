"""Limits the concurrent calls of a deployed API in the embedded emulator; other calls wait for their turn.

The emulator starts a process for each invocation that finds no idle one. A process costs a second of processor time and
tens of megabytes, and stays for minutes. Sixty concurrent submits would keep a laptop busy for minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
from urllib.parse import parse_qs

from fanfold.local.guard import DEPLOYED_API, STREAM, App, Receive, Scope, Send

AT_ONCE = max(4, 2 * (os.cpu_count() or 1))
"""Concurrent ordinary calls; more would only share the same processors."""

HELD_AT_ONCE = 24
"""Concurrent calls that wait (`wait=`, streams). Each holds an idle process."""

TURN_TIMEOUT_SECONDS = 20.0
"""How long a call waits for its turn: shorter than an HTTP client's usual timeout of 30 s and more."""

HELD_TIMEOUT_SECONDS = 10.0
"""The same for one that then waits up to 25 s: together shorter than our clients' 40 s."""

RETRY_AFTER_SECONDS = 1


def taking_turns(
    app: App,
    *,
    at_once: int = AT_ONCE,
    held_at_once: int = HELD_AT_ONCE,
    timeout_seconds: float = TURN_TIMEOUT_SECONDS,
    held_timeout_seconds: float = HELD_TIMEOUT_SECONDS,
) -> App:
    """An ASGI application that limits concurrent calls of the deployed API, in the order of arrival.

    A call that waits too long for its turn is answered 429.
    """
    quick, held = asyncio.Semaphore(at_once), asyncio.Semaphore(held_at_once)

    async def in_turn(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or DEPLOYED_API.match(scope["path"]) is None:
            await app(scope, receive, send)
            return
        room, timeout = (held, held_timeout_seconds) if _is_held(scope) else (quick, timeout_seconds)
        try:
            async with asyncio.timeout(timeout):
                await room.acquire()
        except TimeoutError:
            await _refuse(send)
            return
        try:
            await app(scope, receive, send)
        finally:
            room.release()

    return in_turn


def _is_held(scope: Scope) -> bool:
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    accepts = b",".join(value for name, value in scope["headers"] if name.lower() == b"accept")
    return "wait" in query or b"text/event-stream" in accepts or STREAM.fullmatch(scope["path"]) is not None


async def _refuse(send: Send) -> None:
    problem = {
        "type": "throttled",
        "title": "Too many requests",
        "status": 429,
        "detail": "the local stack has too many calls in hand for this machine; try again",
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_AFTER_SECONDS).encode()),
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body})
