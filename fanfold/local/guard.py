"""Protects the embedded emulator from web pages; programs of this machine may use it.

The emulator obeys every request, and runs functions' code as the user. It listens on loopback only, but a web page in
a browser on this machine can reach loopback too.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]

POLICY_VIOLATION = 1008
"""A WebSocket's close code (RFC 6455, section 7.4.1); before the handshake it becomes a 403."""

HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+)(?::[0-9]{1,5})?")

DEPLOYED_API = re.compile(r"/_aws/execute-api/[^/]+/[^/]+/|/restapis/[^/]+/[^/]+/_user_request_/")
"""The path of a deployed API, which requires a token itself."""

STREAM = re.compile(rf"(?:{DEPLOYED_API.pattern})v1/stream/[^/]+")
"""A run's `links.stream`, which pages may use. Its ticket is the permission, as on AWS."""


def guarded(app: App) -> App:
    """An ASGI application that answers 403 to requests that `complaint` refuses, and passes others to `app`."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        said = complaint(scope) if scope["type"] in ("http", "websocket") else None
        if said is None:
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()  # the request to connect, which this answers
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": said})
        else:
            await _refuse(send, said)

    return guard


def complaint(scope: Scope) -> str | None:
    """Why a request is refused, in one sentence; None for a program's on this machine.

    A browser names the page's origin (`Origin`) in everything that a page posts, and how the page stands to the address
    (`Sec-Fetch-Site`) also in what has no origin, such as a picture's address. A page whose own name was made to lead
    here (DNS rebinding) is given away by `Host`.
    """
    for host in _values(scope, b"host") or [""]:
        if not is_loopback(host):
            return f"This emulator answers to names of this machine, and {host[:100]!r} is none."
    if scope.get("method") == "GET" and STREAM.fullmatch(scope["path"]):
        return None
    origins, sites = _values(scope, b"origin"), _values(scope, b"sec-fetch-site")
    own = not origins or _is_the_apis_own(scope, origins)
    if not own or any(site not in ("none", "same-origin") for site in sites):
        return "This emulator answers programs of this machine, and no web page."
    return None


def is_loopback(host: str) -> bool:
    """Whether a `Host` (name or address, perhaps a port) leads to this machine whatever a name server says.

    Those are loopback addresses, `localhost` and names below it (RFC 6761, section 6.3: nobody can register one), which
    SDKs make up themselves for buckets.
    """
    found = HOST.fullmatch(host)
    if found is None:
        return False
    name = found["name"].lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_the_apis_own(scope: Scope, origins: list[str]) -> bool:
    """Whether the page is one of the deployed API itself: its interactive documentation."""
    own = [f"{scope.get('scheme', 'http')}://{host}" for host in _values(scope, b"host")]
    return origins == own and DEPLOYED_API.match(scope["path"]) is not None


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key.lower() == name]


async def _refuse(send: Send, said: str) -> None:
    body = json.dumps({"message": said}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
