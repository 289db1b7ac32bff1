"""Every call of the HTTP API as a value. Both clients have a method for each.

Every call may be repeated: reads, cancel, pause and resume are idempotent, `PUT` registers a hash, and the others carry
an idempotency key, the caller's or a generated one.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from fanfold.client.results import (
    Accepted,
    BatchResult,
    EventPage,
    Health,
    Queue,
    Registration,
    Run,
    RunPage,
    SignalReceipt,
    WorkflowPage,
    WorkflowVersions,
)

T = TypeVar("T")

BATCH = 100
"""How many runs one call takes."""

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, whose answer's JSON is a `T`. `path` is relative to the API's base URL.

    `has` is a member of every correct answer. With `unwrap` that member is the `T`.
    """

    method: str
    path: str
    has: str
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    unwrap: bool = False


UNCHANGED: Any = object()
"""The default input of a fork: the old run's input. None would be an input too."""


def keyed(key: str) -> Mapping[str, str]:
    """The header of an idempotency key. Raises ValueError for an invalid key."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"an idempotency key is 1–255 visible ASCII characters, not {key[:100]!r}")
    return {"idempotency-key": key}


def made_up_key() -> str:
    """A random idempotency key."""
    return uuid.uuid4().hex


def health() -> Call[Health]:
    """Whether the service is reachable. Needs no token."""
    return Call(method="GET", path="v1/health", has="status")


def apply(document: Mapping[str, Any] | str | bytes, *, name: str | None = None) -> Call[Registration]:
    """Register a workflow: a mapping, or YAML or JSON text.

    Raises `Invalid` with every reason at once, ValueError when the document has no name.
    """
    if isinstance(document, Mapping):
        stated = document.get("name")
        media_type, body = "application/json", json.dumps(document, allow_nan=False).encode()
    else:
        stated = None if name else _stated_name(document)
        media_type, body = "application/yaml", document.encode() if isinstance(document, str) else document
    chosen = name or stated
    if not isinstance(chosen, str):
        raise ValueError("the document has no `name`")
    path = f"v1/workflows/{quote(chosen, safe='')}"
    return Call(method="PUT", path=path, has="version", headers={"content-type": media_type}, body=body)


def _stated_name(text: str | bytes) -> object:
    # The service's own parser, so that both find the same name.
    from fanfold.text.document_text import MalformedText, from_text

    try:
        parsed = from_text(text.encode() if isinstance(text, str) else text)
    except MalformedText as error:
        raise ValueError(f"the document is not YAML: {error}") from error
    return parsed.get("name") if isinstance(parsed, dict) else None


def submit(
    workflow: str,
    input: Any = None,
    *,
    key: str | None = None,
    version: str | None = None,
    lane: str | None = None,
    priority: int | None = None,
    tags: Mapping[str, str] | None = None,
    delay: str | float | None = None,
) -> Call[Accepted]:
    """Submit a run. The same `key` gives the same run again; without a key the client generates one.

    `priority` (0 to 9) replaces `lane`; `delay` is seconds, or a duration such as `30s`.
    Raises `Refused` when the queue is full, `NotFound` for an unknown workflow, `StateConflict`
    for a key that was used with another body, ValueError for a key that is not 1–255 visible ASCII characters.
    """
    wanted = {
        "workflow": workflow,
        "input": input,
        "version": version,
        "lane": lane,
        "priority": priority,
        "tags": tags,
        "delay": delay,
    }
    run = {name: value for name, value in wanted.items() if value is not None}
    return _post("v1/runs", run, has="id", key=key or made_up_key())


def submit_batch(runs: Sequence[Mapping[str, Any]], *, key: str) -> Call[list[BatchResult]]:
    """Submit at most 100 runs; the one at position i gets the idempotency key `key/i`."""
    return _post("v1/runs/batch", {"runs": list(runs)}, has="results", unwrap=True, key=key)


def get(
    run_id: str, *, wait: int = 0, steps: str | None = None, inline: bool = False, progress: bool = False
) -> Call[Run]:
    """The run. With `wait` (seconds, at most 25) the call waits for the run's end.

    With `progress` the items of its open maps are counted, which costs the service a read for each.
    """
    query = {"wait": str(wait)} if wait else {}
    if steps is not None:
        query["steps"] = steps
    if inline:
        query["inline"] = "true"
    if progress:
        query["progress"] = "true"
    return Call(method="GET", path=_run(run_id), has="id", query=query)


def events(run_id: str, *, after: int, wait: int) -> Call[EventPage]:
    """The journal after a `seq`. With `wait` (seconds) the call waits for an event."""
    query = {"after": str(after), "limit": "200"} | ({"wait": str(wait)} if wait else {})
    return Call(method="GET", path=_run(run_id, "/events"), has="events", query=query)


def runs(*, status: str | None, workflow: str | None, tags: list[str], limit: int, cursor: str | None) -> Call[RunPage]:
    """One page of runs, newest first."""
    wanted: dict[str, str | list[str] | None] = {"status": status, "workflow": workflow, "tag": tags, "cursor": cursor}
    query = {name: value for name, value in wanted.items() if value}
    return Call(method="GET", path="v1/runs", has="runs", query={**query, "limit": str(limit)})


def cancel(run_id: str) -> Call[Run]:
    """Cancel the run; its active tasks are told to stop. Raises `StateConflict` when it has ended otherwise."""
    return Call(method="POST", path=_run(run_id, "/cancel"), has="id")


def pause(run_id: str) -> Call[Run]:
    """Pause the run: no new step starts, and deadlines stand still. Raises `StateConflict` when it has ended."""
    return Call(method="POST", path=_run(run_id, "/pause"), has="id")


def resume(run_id: str) -> Call[Run]:
    """Continue a paused run. Raises `StateConflict` when it has ended."""
    return Call(method="POST", path=_run(run_id, "/resume"), has="id")


def redrive(run_id: str, *, key: str | None = None) -> Call[Run]:
    """Continue a failed or cancelled run. Succeeded steps keep their results.

    The same `key` gives the same redrive again. Raises `StateConflict` for a run in another status.
    """
    return Call(method="POST", path=_run(run_id, "/redrive"), has="id", headers=keyed(key or made_up_key()))


def signal(run_id: str, name: str, payload: Any = None, *, key: str | None = None) -> Call[SignalReceipt]:
    """Send the run a signal. `payload`, any JSON, becomes the output of the wait that takes it.

    The same `key` gives the same signal again. Raises `StateConflict` when the run has ended or
    holds a hundred signals that no wait has taken.
    """
    return _post(_run(run_id, f"/signals/{quote(name, safe='')}"), payload, has="seq", key=key or made_up_key())


def fork(
    run_id: str, from_step: str, *, input: Any = UNCHANGED, version: str | None = None, key: str | None = None
) -> Call[Accepted]:
    """Start a new run that takes over every step that is not downstream of `from_step`.

    Raises `Invalid` for an unknown step, `Refused` when the queue is full.
    """
    body: dict[str, Any] = {"from_step": from_step}
    if input is not UNCHANGED:
        body["input"] = input
    if version is not None:
        body["version"] = version
    return _post(_run(run_id, "/fork"), body, has="id", key=key or made_up_key())


def workflows(*, limit: int, cursor: str | None) -> Call[WorkflowPage]:
    """One page of workflows, by name."""
    query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
    return Call(method="GET", path="v1/workflows", has="workflows", query=query)


def workflow(name: str, *, version: str | None = None) -> Call[WorkflowVersions]:
    """A workflow's document, current or of one version, and all its versions. Raises `NotFound`."""
    query = {} if version is None else {"version": version}
    return Call(method="GET", path=f"v1/workflows/{quote(name, safe='')}", has="document", query=query)


def queues() -> Call[list[Queue]]:
    """The queued runs of each class."""
    return Call(method="GET", path="v1/queues", has="queues", unwrap=True)


def _run(run_id: str, rest: str = "") -> str:
    return f"v1/runs/{quote(run_id, safe='')}{rest}"


def _post(path: str, body: Any, *, has: str, key: str, unwrap: bool = False) -> Call[Any]:
    return Call(
        method="POST",
        path=path,
        has=has,
        unwrap=unwrap,
        headers={"content-type": "application/json", **keyed(key)},
        body=json.dumps(body, allow_nan=False).encode(),
    )
