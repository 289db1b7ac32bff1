"""The authorizer Lambda: whose token is this? It always says yes and adds what it found.

A deny would be a bare 403 without a body, an exception a 500; the API's handler answers with a
problem instead. API Gateway caches the answer per token for five minutes. An HTTP API gets a simple
response, a REST API a policy: which of them asks, the event says.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fanfold.engine.errors import Unreadable
from fanfold.engine.ports import Tokens
from fanfold.service.bearer_tokens import matches, parse
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services, services

Answer = dict[str, Any]


class Authorizer:
    """The authorizer on some services, called as Lambda calls a handler; `close` ends its event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner = asyncio.Runner()

    def __call__(self, event: Mapping[str, Any], context: object) -> Answer:
        """What is known of the token in this event; see `verdict`."""
        found = self._runner.run(verdict(event, self._services.tokens, now=self._services.clock.now()))
        return allowed(event, found)

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


async def verdict(event: Mapping[str, Any], tokens: Tokens, *, now: datetime) -> dict[str, str]:
    """What is known of the token: a verdict, and for a good one its tenant, scopes, owner, id and bounds.

    One read, and none for a text that can't be a token. Raises an `InfrastructureError` when the
    token can't be looked up: API Gateway then answers with an error and caches nothing.
    """
    scheme, _, text = _authorization(event).strip().partition(" ")
    parsed = parse(text.strip()) if scheme.lower() == "bearer" else None
    if parsed is None:
        return {"verdict": "unknown"}
    token_id, secret = parsed
    try:
        token = await tokens.get(token_id)
    except Unreadable as error:
        logging.getLogger(__name__).error("token %s can't be read: %s", token_id, error)
        return {"verdict": "unknown"}
    if token is None or not matches(token, secret):
        return {"verdict": "unknown"}
    if token.revoked_at is not None:
        return {"verdict": "revoked"}
    if token.expires_at is not None and token.expires_at <= now:
        return {"verdict": "expired"}
    scopes = " ".join(sorted(token.scopes))
    found = {"verdict": "ok", "tenant": token.tenant, "scopes": scopes, "owner": token.owner, "token": token.id}
    # Only texts: a REST API lets nothing else through.
    if token.max_lane is not None:
        found["max_lane"] = token.max_lane
    if token.max_priority is not None:
        found["max_priority"] = str(token.max_priority)
    return found


def allowed(event: Mapping[str, Any], context: Mapping[str, str]) -> Answer:
    """The answer that lets the request pass, with this context, in the form its API understands."""
    if "routeArn" in event or "methodArn" not in event:
        return {"isAuthorized": True, "context": dict(context)}
    api, _, _ = str(event["methodArn"]).partition("/")
    # Every stage and method: the answer is cached by token, and the next request may be for another route.
    statement = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{api}/*/*"}
    return {
        "principalId": context.get("token", context["verdict"]),
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": dict(context),
    }


def _authorization(event: Mapping[str, Any]) -> str:
    """The header: a REST API hands it over alone, an HTTP API with all others."""
    headers = {str(name).lower(): value for name, value in (event.get("headers") or {}).items()}
    return str(event.get("authorizationToken") or headers.get("authorization") or "")
