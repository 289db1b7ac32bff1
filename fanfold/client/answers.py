"""Turns an answer into its value, an exception, or another try."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import TypeVar, cast

from fanfold.client.calls import Call
from fanfold.client.errors import NotFanfold, problem

T = TypeVar("T")

REPEATED = frozenset({429, 502, 503, 504})
"""Statuses after which a call is repeated."""

PROBLEM = "application/problem+json"
"""The media type of the service's errors."""

_NOBODYS = frozenset({404, 405, 410, 501})
"""Answers of other servers to unknown paths and methods; this service adds a problem document."""


def value_of(call: Call[T], *, url: str, status: int, body: bytes, retry_after: str | None) -> T:
    """The JSON of an answer from `url`.

    Raises the `Problem` of an error, and `NotFanfold` for an answer that this service never gives.
    """
    try:
        value = json.loads(body) if body else None
    except ValueError as error:
        if status < 400 or status in _NOBODYS:
            raise NotFanfold(f"the answer is not JSON: is {url} a Fanfold API's address?") from error
        value = None
    if status in _NOBODYS and not (isinstance(value, Mapping) and "title" in value):
        raise NotFanfold(f"HTTP {status}, and no word of why: is {url} a Fanfold API's address?")
    if status >= 400:
        raise problem(status, value, retry_after_seconds=seconds_of(retry_after))
    if not (isinstance(value, Mapping) and call.has in value):
        raise NotFanfold(f"the answer has no {call.has!r}: is {url} a Fanfold API's address?")
    return cast(T, value[call.has] if call.unwrap else value)  # the API's contract says that this call's answer is a T


def comes_again(status: int, media_type: str | None) -> bool:
    """Whether a call should be repeated: by its status, or because a 500 comes from the gateway.

    API Gateway's HTTP APIs answer 500 when a function was killed, or could not read the token.
    """
    return status in REPEATED or (status == 500 and (media_type or "").partition(";")[0].strip() != PROBLEM)


def seconds_of(retry_after: str | None) -> int | None:
    """A `Retry-After` in whole seconds; None when absent or a date (which this service never sends)."""
    try:
        return max(0, ceil(float(retry_after))) if retry_after else None
    except (ValueError, OverflowError):
        return None


def pause_before_repeat(
    attempt: int, *, retry_after_seconds: float | None, spent_seconds: float, retry_for_seconds: float, chance: float
) -> float | None:
    """Seconds to wait before try `attempt + 1` (attempts count from 1), or None to give up.

    Obeys `Retry-After`, else doubles from 0.1 s to 5 s; `chance` in [0, 1) spreads clients out.
    It gives up at once when the pause would end after the caller's retry time.
    """
    backoff = min(5.0, 0.1 * 2 ** min(attempt - 1, 6)) * (0.5 + chance)
    pause = backoff if retry_after_seconds is None else retry_after_seconds + 0.1 * chance
    return pause if spent_seconds + pause <= retry_for_seconds else None
