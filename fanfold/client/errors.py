"""The exceptions of the clients, as one tree.

ApiError
├── NotReachable          no answer: wrong address, no network, service down
├── NotFanfold            an answer of another program: wrong address
└── Problem               the service answered with an error (RFC 9457)
    ├── Invalid           400, 413, 422: the request is wrong; `errors` has every reason
    ├── Unauthorized      401, 403: the token
    ├── NotFound          404
    ├── StateConflict     409: the run's state, or an idempotency key used for another body
    ├── Refused           429: the queue is full, or too many requests; see `retry_after_seconds`
    └── ServiceFailure    5xx: the service failed
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any


class ApiError(Exception):
    """Root of the exceptions that the client raises on purpose."""


class NotReachable(ApiError):
    """The service gave no answer, in spite of retries."""


class NotFanfold(ApiError):
    """Another program answered: another server, or another path of the right one."""


class Problem(ApiError):
    """An error of the service: `status`, a stable `type`, a `title`, a `detail`, and `errors` with several reasons.

    `more` has RFC 9457's extension members, such as `parameter` or `estimate`.
    """

    def __init__(
        self,
        *,
        status: int,
        type: str,
        title: str,
        detail: str,
        errors: tuple[Mapping[str, Any], ...],
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        reasons = "; ".join(f"{e.get('pointer') or '/'}: {e.get('detail', '')}" for e in errors)
        super().__init__(f"{title}: {reasons}" if reasons else detail or title)
        self.status = status
        self.type = type
        self.title = title
        self.detail = detail
        self.errors = errors
        self.more = more

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the exception with all its facts."""
        facts = self._facts()
        return partial(type(self), **facts), (), {k: v for k, v in vars(self).items() if k not in facts} or None

    def _facts(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "type": self.type,
            "title": self.title,
            "detail": self.detail,
            "errors": tuple(dict(error) for error in self.errors),
            "more": dict(self.more),
        }

    def content(self) -> dict[str, Any]:
        """The problem as the JSON object it came as (RFC 9457)."""
        content: dict[str, Any] = {
            **self.more,
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail or str(self),
        }
        return content | ({"errors": [dict(error) for error in self.errors]} if self.errors else {})


class Invalid(Problem):
    """The request is malformed, too large or impossible."""


class Unauthorized(Problem):
    """The token is missing, unknown, revoked or expired, or lacks the scope."""


class NotFound(Problem):
    """No such run or workflow (for this tenant)."""


class StateConflict(Problem):
    """The run's status does not allow the call, or the idempotency key was used with another body."""


class ServiceFailure(Problem):
    """The service failed; try again later."""


class Refused(Problem):
    """The queue is full, or too many requests. Repeat after `retry_after_seconds` (None: the service did not say)."""

    def __init__(self, *, retry_after_seconds: int | None = None, **facts: Any) -> None:
        super().__init__(**facts)
        self.retry_after_seconds = retry_after_seconds

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "retry_after_seconds": self.retry_after_seconds}

    def content(self) -> dict[str, Any]:
        """The problem as a JSON object; `retry_after` (seconds) as it stands within a batch."""
        when = self.retry_after_seconds
        return super().content() | ({} if when is None else {"retry_after": when})


_MEMBERS = frozenset({"type", "title", "status", "detail", "errors", "message"})

_BY_STATUS: Mapping[int, type[Problem]] = {
    400: Invalid,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: StateConflict,
    413: Invalid,
    422: Invalid,
}


def problem(status: int, body: Any, *, retry_after_seconds: int | None = None) -> Problem:
    """The exception for an answer of 400 or more. `body` is its JSON, or its text."""
    stated = body if isinstance(body, Mapping) else {}
    errors = stated.get("errors")
    facts: dict[str, Any] = {
        "status": status,
        "type": str(stated.get("type", "about:blank")),
        # API Gateway's own answers are {"message": …}; a proxy's have no details.
        "title": str(stated.get("title") or stated.get("message") or f"HTTP {status}"),
        "detail": str(stated.get("detail", "")),
        "errors": tuple(e for e in errors if isinstance(e, Mapping)) if isinstance(errors, list) else (),
        "more": {name: value for name, value in stated.items() if name not in _MEMBERS},
    }
    if status == 429:
        return Refused(retry_after_seconds=retry_after_seconds, **facts)
    return _BY_STATUS.get(status, ServiceFailure if status >= 500 else Problem)(**facts)
