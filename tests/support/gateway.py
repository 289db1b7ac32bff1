"""API Gateway for tests: HTTP in, the authorizer's and the API's events out, as a WSGI application."""

from __future__ import annotations

import asyncio
import base64
import queue
from collections.abc import Callable, Iterable
from typing import Any

from fanfold.service.functions.api import build
from fanfold.service.functions.authorizer import verdict
from fanfold.service.wiring import Services

Start = Callable[[str, list[tuple[str, str]]], Any]


class Gateway:
    """Both Lambda functions on some services behind one WSGI application, `instances` of them at once.

    Unlike the real one it lets a request without a token through, so that the handler says what it
    thinks of that. Bodies are handed over as base64, as the real one does where it has doubts.
    """

    def __init__(self, services: Services, *, instances: int = 1) -> None:
        self._services = services
        self._free: queue.Queue[_Instance] = queue.Queue()
        for _ in range(instances):
            self._free.put(_Instance(services))
        self._instances = instances

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """One request, in payload format 2.0."""
        instance = self._free.get()
        try:
            result = instance.answer(_event(environ))
        finally:
            self._free.put(instance)
        headers = {**result.get("headers", {}), **{k: v[0] for k, v in result.get("multiValueHeaders", {}).items()}}
        start(f"{result['statusCode']} Answer", [(name, str(value)) for name, value in headers.items()])
        return [(result.get("body") or "").encode()]

    def close(self) -> None:
        """End the instances' event loops."""
        for _ in range(self._instances):
            self._free.get().close()


class _Instance:
    """One sandbox: an event loop, the authorizer and the API."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._app = build(services)
        self._runner = asyncio.Runner()

    def answer(self, event: dict[str, Any]) -> dict[str, Any]:
        return self._runner.run(self._answer(event))

    async def _answer(self, event: dict[str, Any]) -> dict[str, Any]:
        if "authorization" in event["headers"]:
            found = await verdict(event, self._services.tokens, now=self._services.clock.now())
            event["requestContext"]["authorizer"] = {"lambda": found}
        return await self._app.answer(event, None)

    def close(self) -> None:
        self._runner.close()


def _event(environ: dict[str, Any]) -> dict[str, Any]:
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if length else b""
    headers = {name[5:].replace("_", "-").lower(): str(v) for name, v in environ.items() if name.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": environ.get("QUERY_STRING", ""),
        "queryStringParameters": {},
        "headers": headers,
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
        "requestContext": {"stage": "$default", "http": {"method": environ["REQUEST_METHOD"], "path": path}},
    }
