"""Every call of the HTTP API as a value, and the rule for repeating one: what both clients share.

All calls here may be repeated: reads by nature, `PUT` because it registers a hash, a submission
because it carries an idempotency key of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

from fanfold.client.errors import NotFanfold, problem
from fanfold.client.results import (
    Accepted,
    BatchResult,
    EventPage,
    Health,
    Queue,
    Registration,
    Run,
    RunPage,
    WorkflowPage,
    WorkflowVersions,
)

T = TypeVar("T")

LONGEST_WAIT_SECONDS = 20
"""How long one request may be held: API Gateway cuts HTTP APIs at 30 s, and the answer must travel."""

READ_TIMEOUT_SECONDS = 40.0
"""Longer than API Gateway lets any request live, so its answer comes first."""

BATCH = 100
"""How many runs one call takes."""

REPEATED = frozenset({429, 502, 503, 504})
"""Answers that ask to come again."""

PROBLEM = "application/problem+json"
"""The media type of all that the service itself says when it says no."""

_KEY = re.compile(r"[\x21-\x7e]{1,255}")

_NOBODYS = frozenset({404, 405, 410, 501})
"""What other servers answer to paths and methods they do not know; from this service they come with a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, whose answer's JSON is a `T`. `path` is relative to the API's base URL.

    `has` is a member every right answer has; `unwrap`: that member is the `T`.
    """

    method: str
    path: str
    has: str
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    unwrap: bool = False


def keyed(key: str) -> Mapping[str, str]:
    """The header of an idempotency key. Raises ValueError for one that no header can carry."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"an idempotency key is 1–255 visible ASCII characters, not {key[:100]!r}")
    return {"idempotency-key": key}


def health() -> Call[Health]:
    """Is the service there (no token needed)."""
    return Call(method="GET", path="v1/health", has="status")


def apply(name: str, document: str | bytes, *, media_type: str) -> Call[Registration]:
    """Register a workflow document, `application/json` or `application/yaml`."""
    data = document.encode() if isinstance(document, str) else document
    path = f"v1/workflows/{quote(name, safe='')}"
    return Call(method="PUT", path=path, has="version", headers={"content-type": media_type}, body=data)


def submission(
    workflow: str,
    input: Any,
    *,
    version: str | None,
    lane: str | None,
    priority: int | None,
    tags: Mapping[str, str] | None,
    delay: str | float | None,
) -> Mapping[str, Any]:
    """A run to be submitted; what is None is left to the service's default."""
    wanted = {
        "workflow": workflow,
        "input": input,
        "version": version,
        "lane": lane,
        "priority": priority,
        "tags": tags,
        "delay": delay,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def submit(run: Mapping[str, Any], *, key: str) -> Call[Accepted]:
    """Submit a run under an idempotency key."""
    return Call(
        method="POST",
        path="v1/runs",
        has="id",
        headers={"content-type": "application/json", **keyed(key)},
        body=json.dumps(run, allow_nan=False).encode(),
    )


def submit_many(runs: Sequence[Mapping[str, Any]], *, key: str) -> Call[list[BatchResult]]:
    """Submit at most 100 runs; the one at position i gets the idempotency key `key/i`."""
    return Call(
        method="POST",
        path="v1/runs/batch",
        has="results",
        unwrap=True,
        headers={"content-type": "application/json", **keyed(key)},
        body=json.dumps({"runs": list(runs)}, allow_nan=False).encode(),
    )


def get(run_id: str, *, wait: int, steps: str | None = None, inline: bool = False, progress: bool = False) -> Call[Run]:
    """Read a run, holding the answer up to `wait` seconds until it has ended; `progress` counts its open maps."""
    query = {"wait": str(wait)} if wait else {}
    if steps is not None:
        query["steps"] = steps
    if inline:
        query["inline"] = "true"
    if progress:
        query["progress"] = "true"
    return Call(method="GET", path=f"v1/runs/{quote(run_id, safe='')}", has="id", query=query)


def events(run_id: str, *, after: int, wait: int) -> Call[EventPage]:
    """The journal after a `seq`, holding the answer up to `wait` seconds until there is something."""
    query = {"after": str(after), "limit": "200"} | ({"wait": str(wait)} if wait else {})
    return Call(method="GET", path=f"v1/runs/{quote(run_id, safe='')}/events", has="events", query=query)


def runs(*, status: str | None, workflow: str | None, tags: list[str], limit: int, cursor: str | None) -> Call[RunPage]:
    """One page of runs, newest first."""
    wanted: dict[str, str | list[str] | None] = {"status": status, "workflow": workflow, "tag": tags, "cursor": cursor}
    query = {name: value for name, value in wanted.items() if value}
    return Call(method="GET", path="v1/runs", has="runs", query={**query, "limit": str(limit)})


def workflows(*, limit: int, cursor: str | None) -> Call[WorkflowPage]:
    """One page of workflows, by name."""
    query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
    return Call(method="GET", path="v1/workflows", has="workflows", query=query)


def workflow(name: str, *, version: str | None) -> Call[WorkflowVersions]:
    """One workflow's document."""
    query = {} if version is None else {"version": version}
    return Call(method="GET", path=f"v1/workflows/{quote(name, safe='')}", has="document", query=query)


def queues() -> Call[list[Queue]]:
    """How full each class is."""
    return Call(method="GET", path="v1/queues", has="queues", unwrap=True)


def value_of(call: Call[T], *, url: str, status: int, body: bytes, retry_after: str | None) -> T:
    """The JSON that an answer from `url` carries.

    Raises the `Problem` it states instead, `NotFanfold` for what this service never answers.
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
    """Whether an answer asks to come again: in so many words, or as a 500 that is a gateway's and not the service's.

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
    attempt: int, *, retry_after_seconds: float | None, spent_seconds: float, patience_seconds: float, chance: float
) -> float | None:
    """Seconds to wait before try `attempt + 1` (attempts count from 1), or None to give up.

    Obeys `Retry-After`, else doubles from 0.1 s to 5 s; `chance` in [0, 1) spreads clients out.
    It gives up at once when the pause would pass the caller's patience: waiting for nothing helps nobody.
    """
    backoff = min(5.0, 0.1 * 2 ** min(attempt - 1, 6)) * (0.5 + chance)
    pause = backoff if retry_after_seconds is None else retry_after_seconds + 0.1 * chance
    return pause if spent_seconds + pause <= patience_seconds else None
