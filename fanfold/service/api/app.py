"""The HTTP API as one callable. Powertools routes by the table of calls; errors become problem documents.

The resolvers of both payload formats share everything. Powertools' own validation is off: it answers malformed JSON
with 422, accepts NaN and duplicate keys, and has its own error format.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import ApiGatewayResolver

from fanfold.engine.errors import InfrastructureError
from fanfold.service.api.access import caller_of
from fanfold.service.api.handlers.context import context_of
from fanfold.service.api.problems import INTERNAL, PROBLEM_JSON, Problem, no_route, problem_of, refusals, wrong_method
from fanfold.service.api.requests import Request, request_of
from fanfold.service.api.response_models import Health
from fanfold.service.api.responses import Answer, reply
from fanfold.service.api.routes import CALLS, Call, pattern
from fanfold.service.telemetry.aws_usage import COSTS
from fanfold.service.telemetry.reporting import about, flush, logger
from fanfold.service.version import VERSION
from fanfold.service.wiring import Services

FOLD = timedelta(seconds=10)
"""The AWS usage of calls is written this often at most: a log line costs more than a read."""

_Work = Callable[[Request], Awaitable[Answer]]


class App:
    """The API on some services: call it like a Lambda handler, or await `answer` inside a loop.

    All calls of one process run on one event loop, kept between them; `close` ends it.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._desk = context_of(services)
        self._runner: asyncio.Runner | None = None
        self._told_at = datetime.min.replace(tzinfo=UTC)
        self._http = self._routed(APIGatewayHttpResolver())
        self._rest = self._routed(APIGatewayRestResolver())

    def __call__(self, event: Mapping[str, Any], context: object) -> dict[str, Any]:
        """The proxy answer to a proxy event. Raises nothing."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self.answer(event, context))
        finally:
            self.tell()

    async def answer(self, event: Mapping[str, Any], context: object) -> dict[str, Any]:
        """The proxy answer to an event of payload format 2.0 or 1.0."""
        resolver = self._http if event.get("version") == "2.0" else self._rest
        try:
            return await resolver.resolve_async(event, context)  # type: ignore[arg-type]  # any context will do
        except Exception:
            # A malformed event, or a bug in the router: the answer is a problem document, never a traceback.
            logger().exception("an event could not be answered")
            headers = {"Content-Type": PROBLEM_JSON}
            return {"statusCode": 500, "headers": headers, "body": INTERNAL.body(), "isBase64Encoded": False}

    def tell(self) -> None:
        """Write the metrics. AWS usage alone waits for a call after `FOLD`; a sandbox that ends loses it."""
        now = self._services.clock.now()
        if now - self._told_at >= FOLD:
            self._told_at = now
            flush()
        else:
            flush(but=COSTS)

    def close(self) -> None:
        """End the event loop."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _routed(self, resolver: ApiGatewayResolver) -> ApiGatewayResolver:
        def add(method: str, path: str, work: Callable[..., Awaitable[Answer]]) -> None:
            async def route(**parameters: str) -> Response[str]:
                # Before the first await, because Powertools keeps the event in shared state.
                event = resolver.current_event
                return await self._guarded(event.raw_event, event.path, functools.partial(work, **parameters))

            resolver.route(path.replace("{", "<").replace("}", ">"), method)(route)

        for call in CALLS:
            add(call.method, call.path, functools.partial(self._call, call))
        for path, work in self._open().items():
            add("GET", path, work)

        def nowhere(_: Exception) -> Response[str]:
            return _problem(self._no_route(resolver.current_event.http_method, resolver.current_event.path))

        resolver.not_found(nowhere)
        return resolver

    async def _guarded(self, event: Mapping[str, Any], path: str, work: _Work) -> Response[str]:
        try:
            request = request_of(event, path=path, max_body_bytes=self._services.settings.max_body_bytes)
            sent = await reply(await work(request), self._services.blobs, name=self._services.ids.token())
        except Exception as error:
            problem = problem_of(error)
            if problem is INTERNAL:
                logger().exception("a call failed", extra={"path": path})
            elif isinstance(error, InfrastructureError):
                logger().warning("a call was not served", extra={"path": path, "error": repr(error)})
            return _problem(problem)
        return Response(
            status_code=sent.status, content_type=sent.media_type, body=sent.body, headers=dict(sent.headers)
        )

    async def _call(self, call: Call, request: Request, **parameters: str) -> Answer:
        if call.scope is None:
            return await call.handler(self._desk, request, **parameters)
        caller = caller_of(request.identity)
        caller.must(call.scope)
        # Calls on a run log its id; the run of a submit has none yet.
        named = about(parameters["id"]) if "id" in parameters else nullcontext()
        with named, refusals() if call.accepts_runs else nullcontext():
            return await call.handler(self._desk, caller, request, **parameters)

    def _open(self) -> Mapping[str, _Work]:
        """The calls that need no token."""
        return {"/v1/health": self._health, "/openapi.json": self._openapi, "/docs": self._docs}

    async def _health(self, request: Request) -> Answer:
        return Answer(content=Health(status="ok", version=VERSION))

    async def _openapi(self, request: Request) -> Answer:
        return Answer(content=_specification())

    async def _docs(self, request: Request) -> Answer:
        return Answer(content=_documentation(), media_type="text/html; charset=utf-8")

    def _no_route(self, method: str, path: str) -> Problem:
        known = [(call.method, call.path) for call in CALLS] + [("GET", path) for path in self._open()]
        # A literal path segment is no id or name.
        exact = {other for other, template in known if template == path}
        allowed = sorted(exact or {other for other, template in known if pattern(template).match(path)})
        # The router accepts fewer characters than a path may have; such a path is not found.
        wrong = allowed and method not in allowed
        return (wrong_method(method, allowed) if wrong else no_route(path)).problem


def _problem(problem: Problem) -> Response[str]:
    return Response(
        status_code=problem.status, content_type=PROBLEM_JSON, body=problem.body(), headers=dict(problem.headers)
    )


@functools.cache
def _specification() -> dict[str, Any]:
    # Imported on demand: no other call needs it, and schemas cost a tenth of a second.
    from fanfold.service.api.openapi import document

    return document(CALLS, version=VERSION)


@functools.cache
def _documentation() -> str:
    from fanfold.service.api.page import documentation

    return documentation(_specification())
