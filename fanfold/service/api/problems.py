"""Errors as RFC 9457 problem documents: a slug, a status, a sentence; no stack trace. Refused submits are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from math import ceil

from fanfold.engine.admission.estimates import Estimate, estimate
from fanfold.engine.errors import (
    FanfoldError,
    InfrastructureError,
    InvalidCursor,
    InvalidDocument,
    KeyReused,
    LaneDenied,
    LimitExceeded,
    NewerSchema,
    NotFound,
    PayloadLost,
    QueueFull,
    SignalsFull,
    Unreadable,
    ValidationIssue,
    WrongState,
)
from fanfold.service.telemetry.reporting import Metric, Refusal, count

PROBLEM_JSON = "application/problem+json"
UNAVAILABLE_RETRY_SECONDS = 2
"""Retry-After of a 503: the SDK's retries are over by then, and a throttled table recovers within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem document. `issues` point into the request, `parameter` names a query parameter or header."""

    slug: str
    title: str
    status: int
    detail: str
    issues: Sequence[ValidationIssue] = ()
    parameter: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    estimate: Estimate | None = None

    def content(self) -> dict[str, object]:
        """The problem as a JSON object."""
        content: dict[str, object] = {
            "type": self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.issues:
            content["errors"] = [{"pointer": f.pointer, "detail": f.detail} for f in self.issues]
        if self.parameter is not None:
            content["parameter"] = self.parameter
        if self.estimate is not None:
            content["estimate"] = asdict(self.estimate)
        return content

    def body(self) -> str:
        """The problem as JSON text."""
        return json.dumps(self.content(), separators=(",", ":"))


class Refused(FanfoldError):
    """An error of the HTTP layer alone (a bad token, a wrong method, a malformed body)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.slug}: {problem.detail}")
        self.problem = problem


def malformed(detail: str, *, slug: str = "malformed-json") -> Refused:
    """400: the body does not match its content type."""
    return Refused(Problem(slug=slug, title="The body can't be read", status=400, detail=detail))


def invalid_body(issues: Sequence[ValidationIssue], *, title: str = "The request is invalid") -> Refused:
    """422: the body is well-formed but wrong; with every issue."""
    detail = "; ".join(f"{f.pointer or '/'}: {f.detail}" for f in issues[:3])
    return Refused(Problem(slug="invalid-document", title=title, status=422, detail=detail, issues=issues))


def invalid_workflow(issues: Sequence[ValidationIssue]) -> Refused:
    """422: a workflow document that can't be registered."""
    return invalid_body(issues, title="The workflow is invalid")


def invalid_parameter(name: str, detail: str, *, status: int = 422) -> Refused:
    """422: a query parameter or header has a value that makes no sense; 400 where it has none at all."""
    return Refused(
        Problem(
            slug="invalid-parameter",
            title="A parameter is invalid",
            status=status,
            detail=f"{name}: {detail}",
            parameter=name,
        )
    )


def too_large(detail: str) -> Refused:
    """413."""
    return Refused(Problem(slug="too-large", title="Too large", status=413, detail=detail))


def unauthorized(detail: str) -> Refused:
    """401."""
    return Refused(
        Problem(
            slug="unauthorized",
            title="Not signed in",
            status=401,
            detail=detail,
            headers={"WWW-Authenticate": "Bearer"},
        )
    )


def forbidden(detail: str, *, issues: Sequence[ValidationIssue] = ()) -> Refused:
    """403."""
    return Refused(Problem(slug="forbidden", title="Not allowed", status=403, detail=detail, issues=issues))


def no_route(path: str) -> Refused:
    """404 for a path no call has."""
    return Refused(Problem(slug="not-found", title="Not found", status=404, detail=f"there is nothing at {path[:200]}"))


def wrong_method(method: str, allowed: Sequence[str]) -> Refused:
    """405 for a path that has other methods."""
    return Refused(
        Problem(
            slug="method-not-allowed",
            title="Method not allowed",
            status=405,
            detail=f"{method} is not one of {', '.join(allowed)}",
            headers={"Allow": ", ".join(allowed)},
        )
    )


def throttled(detail: str, *, retry_after_seconds: float) -> Refused:
    """429 for a tenant over its rate."""
    return Refused(
        Problem(
            slug="throttled",
            title="Too many requests",
            status=429,
            detail=detail,
            headers=_retry_after(retry_after_seconds),
        )
    )


INTERNAL = Problem(
    slug="internal",
    title="Something went wrong on our side",
    status=500,
    detail="the request failed for a reason that is not its own; it is logged",
)
"""The answer to an unexpected error, without its details."""


def problem_of(error: Exception) -> Problem:
    """The problem an error is answered with; an error that nobody meant to raise is `INTERNAL`."""
    match error:
        case Refused():
            return error.problem
        case InvalidDocument():
            return invalid_body(error.problems).problem
        case InvalidCursor():
            return Problem(slug="invalid-cursor", title="The cursor is invalid", status=400, detail=str(error))
        case LimitExceeded() if error.limit.endswith("_bytes"):
            return too_large(str(error)).problem
        case LimitExceeded():
            return Problem(slug="limit-exceeded", title="A limit was met", status=422, detail=str(error))
        case PayloadLost():
            # Before `NotFound`: the run exists, but a part of it does not.
            return Problem(slug="unreadable", title="A part of the record is lost", status=500, detail=str(error))
        case NotFound():
            return Problem(slug="not-found", title="Not found", status=404, detail=str(error))
        case LaneDenied():
            return forbidden(str(error), issues=(ValidationIssue(pointer=error.pointer, detail=str(error)),)).problem
        case KeyReused():
            return Problem(slug="key-reused", title="The idempotency key came before", status=409, detail=str(error))
        case WrongState() | SignalsFull():
            return Problem(slug="wrong-state", title="Not possible in this state", status=409, detail=str(error))
        case QueueFull():
            return Problem(
                slug="queue-full",
                title="The queue is full",
                status=429,
                detail=str(error),
                headers=_retry_after(error.retry_after_seconds),
                estimate=estimate(error.limit, error.drain_per_second),
            )
        case Unreadable() if not isinstance(error, NewerSchema):
            # A retry would have the same result.
            return Problem(slug="unreadable", title="The record can't be read", status=500, detail=str(error))
        case InfrastructureError():
            return Problem(
                slug="unavailable",
                title="Not available at the moment",
                status=503,
                detail="a service behind this one did not answer or refused for load; try again",
                headers=_retry_after(UNAVAILABLE_RETRY_SECONDS),
            )
        case _:
            return INTERNAL


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, ceil(seconds)))}


@contextmanager
def refusals() -> Iterator[None]:
    """Count an error that refuses a valid submit, and raise it again."""
    try:
        yield
    except Exception as error:
        count_refusal(error)
        raise


def count_refusal(error: Exception) -> None:
    """Count an error if it refuses a valid submit."""
    match error:
        case QueueFull():
            reason = Refusal.QUEUE_FULL
        case Refused() if error.problem.status == HTTPStatus.TOO_MANY_REQUESTS:
            reason = Refusal.RATE_LIMITED
        case InfrastructureError():
            reason = Refusal.UNAVAILABLE
        case _:
            return
    count(Metric.RUNS_REFUSED)
    count(Metric.REFUSALS, of=(reason,))
