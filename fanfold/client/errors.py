"""What can go wrong between a client and the service, as one tree.

ApiError
├── NotReachable          no answer at all: wrong address, no network, service down
├── NotFanfold            an answer, but of something else: wrong address
└── Problem               the service said no (RFC 9457)
    ├── Invalid           400, 413, 422: the request itself; `errors` has every reason
    ├── Unauthorized      401, 403: the token
    ├── NotFound          404
    ├── StateConflict     409: the run's state, or an idempotency key used for another body
    ├── Refused           429: no room or too fast; `retry_after_seconds` says when to come back
    └── ServiceFailure    5xx: not the caller's fault
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any


class ApiError(Exception):
    """Root of everything the client raises on purpose."""


class NotReachable(ApiError):
    """The service gave no answer, however often it was asked."""


class NotFanfold(ApiError):
    """What answered is no Fanfold API: another server, or another path of the right one."""


class Problem(ApiError):
    """The service said no: `status`, a stable `type`, a `title`, a `detail`, and `errors` where there are several.

    `more` is what else it said (RFC 9457's extension members), as `parameter` or `estimate`.
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
        """Made again from its facts: an exception crosses to another process, and is copied, whole."""
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
    """The request is malformed, too large, or asks for what can't be."""


class Unauthorized(Problem):
    """The token is missing, unknown, revoked or expired, or lacks the scope."""


class NotFound(Problem):
    """No such run or workflow (for this tenant)."""


class StateConflict(Problem):
    """The run's state does not allow it, or the idempotency key came before with another body."""


class ServiceFailure(Problem):
    """The service could not do its part; try again later."""


class Refused(Problem):
    """No room, or too fast: come back after `retry_after_seconds`, a whole number (None: it did not say)."""

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
    """The exception for an answer of 400 or more; `body` is its JSON, or whatever came instead."""
    stated = body if isinstance(body, Mapping) else {}
    errors = stated.get("errors")
    facts: dict[str, Any] = {
        "status": status,
        "type": str(stated.get("type", "about:blank")),
        # API Gateway's own answers say {"message": …}, a proxy's says nothing.
        "title": str(stated.get("title") or stated.get("message") or f"HTTP {status}"),
        "detail": str(stated.get("detail", "")),
        "errors": tuple(e for e in errors if isinstance(e, Mapping)) if isinstance(errors, list) else (),
        "more": {name: value for name, value in stated.items() if name not in _MEMBERS},
    }
    if status == 429:
        return Refused(retry_after_seconds=retry_after_seconds, **facts)
    return _BY_STATUS.get(status, ServiceFailure if status >= 500 else Problem)(**facts)
