"""The authorizer Lambda: whose token is this? It always says yes and adds what it found (HTTP API, simple response).

A deny would be a bare 403 without a body, an exception a 500; the API's handler answers with a
problem instead. API Gateway caches the answer per token for five minutes.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from functions.engine.ports import Token, Tokens
from functions.runtime.credentials import matches, parse
from functions.runtime.settings import Settings
from functions.runtime.wiring import Services, services

Answer = dict[str, Any]


class Authorizer:
    """The authorizer on some services, called as Lambda calls a handler; `close` ends its event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner = asyncio.Runner()

    def __call__(self, event: Mapping[str, Any], context: object) -> Answer:
        """What is known of the token in this event; see `answer`."""
        return self._runner.run(answer(event, self._services.tokens, now=self._services.clock.now()))

    def close(self) -> None:
        """End the event loop."""
        self._runner.close()


def build(services: Services) -> Authorizer:
    """The authorizer on these services."""
    return Authorizer(services)


@functools.cache
def _authorizer() -> Authorizer:
    return build(services(Settings.from_env(os.environ)))


def handler(event: Mapping[str, Any], context: object) -> Answer:
    """Lambda's entry point."""
    return _authorizer()(event, context)


async def answer(event: Mapping[str, Any], tokens: Tokens, *, now: datetime) -> Answer:
    """Allowed, with a verdict, and for a good token its tenant, scopes, owner and id.

    One read, and none for a text that can't be a token. Raises an `InfrastructureError` when the
    token can't be looked up: API Gateway then answers 500 and caches nothing.
    """
    headers = {str(name).lower(): value for name, value in (event.get("headers") or {}).items()}
    scheme, _, text = str(headers.get("authorization") or "").strip().partition(" ")
    parsed = parse(text.strip()) if scheme.lower() == "bearer" else None
    if parsed is None:
        return _answer("unknown")
    token_id, secret = parsed
    token = await tokens.get(token_id)
    if token is None or not matches(token, secret):
        return _answer("unknown")
    if token.revoked_at is not None:
        return _answer("revoked")
    if token.expires_at is not None and token.expires_at <= now:
        return _answer("expired")
    return _answer("ok", token)


def _answer(verdict: str, token: Token | None = None) -> Answer:
    context = {"verdict": verdict}
    if token is not None:
        scopes = " ".join(sorted(token.scopes))
        context |= {"tenant": token.tenant, "scopes": scopes, "owner": token.owner, "token": token.id}
    return {"isAuthorized": True, "context": context}
