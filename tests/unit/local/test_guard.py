"""The guard in front of the embedded emulator: what it lets through, and that nothing else gets past it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fanfold.local.guard import Message, Receive, Scope, Send, guarded, is_loopback


def asked(kind: str, *headers: tuple[bytes, bytes], path: str = "/") -> tuple[list[str], list[Message]]:
    """Which scopes reached the application, and what was sent."""
    reached: list[str] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["type"])

    async def receive() -> Message:
        return {"type": f"{kind}.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": kind, "path": path, "scheme": "http", "headers": list(headers)}
    asyncio.run(guarded(app)(scope, receive, send))
    return reached, sent


HERE = (b"host", b"127.0.0.1:4566")


@pytest.mark.parametrize(
    "headers",
    [
        [HERE, (b"origin", b"https://evil.example")],
        [HERE, (b"Origin", b"null")],
        [(b"host", b"evil.example")],
        [HERE, (b"host", b"evil.example")],
        [HERE, (b"origin", b"http://127.0.0.1:4566"), (b"origin", b"https://evil.example")],
        [HERE, (b"sec-fetch-site", b"cross-site")],
        [],
    ],
)
def test_what_a_page_asks_never_reaches_the_emulator(headers: list[tuple[bytes, bytes]]) -> None:
    reached, sent = asked("http", *headers, path="/_aws/execute-api/a/s/v1")
    assert (reached, sent[0]["status"]) == ([], 403)
    reached, sent = asked("websocket", *headers, path="/_aws/execute-api/a/s/v1")
    assert (reached, [message["type"] for message in sent]) == ([], ["websocket.close"])


def test_a_program_reaches_it_and_so_does_the_servers_own_start() -> None:
    assert asked("http", HERE) == (["http"], [])
    assert asked("websocket", HERE) == (["websocket"], [])
    assert asked("lifespan") == (["lifespan"], [])


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:80", "a.b.localhost:4566", "127.0.0.1", "127.1.2.3:1", "[::1]", "[::1]:4566"]
)
def test_names_of_this_machine_are_its_own(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":80",
        "localhost.",
        "xlocalhost",
        "localhost.example",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "127.0.0.1:x",
        "[::1]x",
        "127.0.0.1, evil.example",
        "localhost\n",
        "a@localhost",
        "localhost/",
        "127.0.0.\u0661",
        "127.0.0.1:\u0663",
    ],
)
def test_no_other_name_passes_for_it(host: str) -> None:
    assert not is_loopback(host)
