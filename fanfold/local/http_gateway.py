"""Replaces API Gateway: converts requests to proxy events and calls the authorizer."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl

from fanfold.service.api.app import App

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MAX_BODY_BYTES: Final = 10_000_000
"""API Gateway's largest body, and the largest value of `max_body_bytes`."""

Authorize = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, str]]]
"""Returns the authorizer's context for a proxy event."""


class HttpGateway:
    """An ASGI application that passes requests to the API in API Gateway's payload format 2.0."""

    def __init__(self, app: App, authorize: Authorize) -> None:
        self._app = app
        self._authorize = authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. The lifespan protocol is not needed."""
        if scope["type"] != "http":
            return
        event = proxy_event(scope, await _body(receive))
        event["requestContext"]["authorizer"] = {"lambda": dict(await self._authorize(event))}
        result = await self._app.answer(event, None)
        body = result.get("body") or ""
        data = base64.b64decode(body) if result.get("isBase64Encoded") else body.encode()
        headers = [(name.lower().encode(), str(value).encode()) for name, value in result.get("headers", {}).items()]
        await reply(send, result["statusCode"], data, headers)


async def reply(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Send a complete answer."""
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def proxy_event(scope: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """The event that an HTTP API's integration gets for a request (payload format 2.0)."""
    # API Gateway joins the values of repeated headers, and encodes binary bodies in base64.
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    query = scope["query_string"].decode("latin-1")
    try:
        told, encoded = body.decode("utf-8"), False
    except UnicodeDecodeError:
        told, encoded = base64.b64encode(body).decode("ascii"), True
    return {
        "version": "2.0",
        "rawPath": scope["path"],
        "rawQueryString": query,
        "queryStringParameters": _joined(query),
        "headers": headers,
        "requestContext": {"stage": "$default", "http": {"method": scope["method"], "path": scope["path"]}},
        "body": told if body else None,
        "isBase64Encoded": encoded,
    }


def _joined(query: str) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


async def _body(receive: Receive) -> bytes:
    """The body, or a part of it that is already too large."""
    body = bytearray()
    while True:
        part = await receive()
        body += part.get("body", b"")
        if not part.get("more_body") or len(body) > MAX_BODY_BYTES:
            return bytes(body)
