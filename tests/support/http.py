"""A client that speaks to the API the way API Gateway does, over services in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fanfold.adapters.memory import (
    MemoryBlobs,
    MemoryCatalog,
    MemoryQueue,
    MemoryRunStore,
    MemorySeats,
    MemorySecrets,
    MemorySlots,
    MemoryTokens,
)
from fanfold.service.api.app import App
from fanfold.service.functions.api import build
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import Services
from tests.support.clock import FakeClock, SeededIds

EVERY_SCOPE = "submit read operate admin"


class _NeverAsked:
    """A port no call of the API may use."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the API asked for {name}")


NEVER_ASKED: Any = _NeverAsked()


def memory_services(settings: Settings | None = None, **changed: Any) -> Services:
    """Services in memory on a clock that stands still; keywords replace single ports."""
    settings = settings or Settings(chaos=True)
    clock = FakeClock()
    services = Services(
        settings=settings,
        runs=MemoryRunStore(),
        queue=MemoryQueue(clock),
        slots=MemorySlots({name: given.max_queue_depth for name, given in settings.classes.items()}),
        blobs=MemoryBlobs(),
        catalog=MemoryCatalog(),
        tokens=MemoryTokens(),
        clock=clock,
        ids=SeededIds(),
        sweeper_state=NEVER_ASKED,
        map_records=NEVER_ASKED,
        fan_out=NEVER_ASKED,
        secrets=MemorySecrets(),
        seats=MemorySeats(settings.max_watchers),
    )
    return replace(services, **changed)


def settings_with(*, max_queue_depth: int = 10_000, lanes: tuple[str, ...] = ("normal",), **given: Any) -> Settings:
    """Settings of one class `model`."""
    return Settings(classes={"model": ClassSettings(max_queue_depth=max_queue_depth, lanes=lanes)}, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer as a client sees it."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(slots=True, kw_only=True)
class Http:
    """Calls one `App`; keywords of a call change who calls and in which payload format."""

    services: Services
    tenant: str = "acme"
    version: str = "2.0"
    app: App = field(init=False)

    def __post_init__(self) -> None:
        self.app = build(self.services)

    async def __call__(self, method: str, url: str, body: Any = None, **given: Any) -> Reply:
        result = await self.app.answer(self.event(method, url, body, **given), None)
        assert not result["isBase64Encoded"]
        headers = {**result.get("headers", {})}
        headers |= {name: values[0] for name, values in result.get("multiValueHeaders", {}).items()}
        reply = Reply(
            status=result["statusCode"],
            headers={name.lower(): value for name, value in headers.items()},
            text=result["body"],
        )
        if reply.status >= 400:
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.json["status"] == reply.status
            assert "Traceback" not in reply.text
        return reply

    def event(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        tenant: str | None = None,
        scopes: str = EVERY_SCOPE,
        verdict: str | None = "ok",
        bound: Mapping[str, str] = MappingProxyType({}),
        encoded: bool = False,
    ) -> dict[str, Any]:
        """The proxy event API Gateway makes of such a call."""
        parts = urlsplit(url)
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        if encoded and text is not None:
            text = base64.b64encode(text.encode()).decode()
        identity = {"verdict": verdict, "tenant": tenant or self.tenant, "scopes": scopes, "owner": "Ada", **bound}
        if verdict != "ok":
            identity = {"verdict": verdict}
        event: dict[str, Any] = {"version": self.version, "body": text, "isBase64Encoded": encoded}
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        if self.version == "2.0":
            context: dict[str, Any] = {"stage": "$default", "http": {"method": method, "path": parts.path}}
            if verdict is not None:
                context["authorizer"] = {"lambda": identity}
            joined: dict[str, str] = {}
            for name, value in pairs:
                joined[name] = f"{joined[name]},{value}" if name in joined else value
            return event | {
                "rawPath": parts.path,
                "rawQueryString": urlencode(pairs),
                "queryStringParameters": joined,
                "headers": {name.lower(): value for name, value in (headers or {}).items()},
                "requestContext": context,
            }
        context = {"stage": "v", "path": f"/v{parts.path}", "httpMethod": method}
        if verdict is not None:
            context["authorizer"] = identity
        many: dict[str, list[str]] = {}
        for name, value in pairs:
            many.setdefault(name, []).append(value)
        return event | {
            "path": parts.path,
            "httpMethod": method,
            "headers": headers or {},
            "multiValueHeaders": {},
            "queryStringParameters": dict(pairs) or None,
            "multiValueQueryStringParameters": many or None,
            "requestContext": context,
        }


TINY = {"name": "tiny", "steps": {"only": {"task": "core.echo", "input": "${input}"}}}
PAIR = {
    "name": "pair",
    "steps": {"first": {"task": "core.echo"}, "second": {"task": "core.echo", "needs": ["first"]}},
}
