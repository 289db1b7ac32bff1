"""Types of the API's answers, which are plain JSON objects.

Times are RFC 3339 UTC strings with milliseconds. A large value is an object with `$ref`, `bytes`, `sha256` and a
presigned `url`.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
"""The `status` values in which a run has ended."""


class Health(TypedDict):
    """The health of the service; needs no token."""

    status: str
    version: str


class Registration(TypedDict):
    """A registered workflow version; `version` is `sha256:` and the hash of the canonical document."""

    name: str
    version: str
    created_at: str


class WorkflowSummary(Registration):
    """A workflow in a list: its current version."""


class VersionSummary(TypedDict):
    """One version of a workflow, and when it was first registered."""

    version: str
    created_at: str


class WorkflowVersions(Registration):
    """A version of a workflow with its document, and all versions, newest first."""

    document: dict[str, Any]
    versions: list[VersionSummary]


class WorkflowPage(TypedDict):
    """A page of workflows by name. There are more pages exactly when `next_cursor` is not null."""

    workflows: list[WorkflowSummary]
    next_cursor: str | None


class Estimate(TypedDict):
    """How long a run accepted now would wait; None for a figure that is not known yet."""

    ahead: int
    drain_per_second: float | None
    starts_in_seconds: float | None


class Accepted(TypedDict):
    """An accepted run, durable from now on."""

    id: str
    status: str
    workflow: str
    version: str
    created_at: str
    links: dict[str, str]
    estimate: NotRequired[Estimate]


class Refusal(TypedDict):
    """The error of a run of a batch; `retry_after` (seconds) if a repeated submit may succeed."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[dict[str, str]]]
    retry_after: NotRequired[int]
    estimate: NotRequired[Estimate]


class BatchResult(TypedDict):
    """The result of one run of a batch: 202 or 200 and the `run`, or another status and the `problem`."""

    status: int
    run: NotRequired[Accepted]
    problem: NotRequired[Refusal]


class StepError(TypedDict):
    """Why a step or run failed: a stable `type` for programs, a `message` for people."""

    type: str
    message: str


class MapProgress(TypedDict):
    """The progress of a map: its items, those that ended, and failed ones (both null if they were not counted)."""

    items: int
    done: int | None
    failed: int | None


class Step(TypedDict):
    """One step of a run. `attempts` counts executions that began. Only a map that has begun has a `map`."""

    status: str
    attempts: int
    started_at: str | None
    finished_at: str | None
    output: Any
    error: StepError | None
    map: NotRequired[MapProgress | None]


# `class` is a keyword, so the types that have it are written in the functional form.
RunSummary = TypedDict(
    "RunSummary",
    {
        "id": str,
        "workflow": str,
        "version": str,
        "status": str,
        "reason": str | None,
        "error": StepError | None,
        "class": str,
        "lane": str,
        "tags": dict[str, str],
        "created_at": str,
        "started_at": str | None,
        "finished_at": str | None,
        "epoch": int,
        "links": dict[str, str],
    },
)


class Run(RunSummary):
    """A run with its payloads and its steps, in document order."""

    input: Any
    output: Any
    steps: dict[str, Step]


class ListedRun(RunSummary):
    """A run in a list, without payloads and steps. `cursor` continues the list after it."""

    cursor: str


class Event(TypedDict):
    """One entry of a run's journal. `seq` counts from 1 without gaps."""

    seq: int
    at: str
    type: str
    step: NotRequired[str]
    attempt: NotRequired[int]
    error: NotRequired[StepError | None]
    delay_seconds: NotRequired[float]
    epoch: NotRequired[int]
    worker: NotRequired[str]
    items: NotRequired[int]
    failed: NotRequired[int]
    data: NotRequired[Any]


class SignalReceipt(TypedDict):
    """A signal was received: the `seq` of its event."""

    seq: int


class EventPage(TypedDict):
    """A part of a journal. `end`: the run has ended, and there are no more events."""

    events: list[Event]
    last_seq: int
    end: bool


class RunPage(TypedDict):
    """A page of runs, newest first. There are more pages exactly when `next_cursor` is not null."""

    runs: list[ListedRun]
    next_cursor: str | None


class Lane(TypedDict):
    """The queued runs of one lane."""

    queued: int


Queue = TypedDict(
    "Queue",
    {
        "class": str,
        "lanes": dict[str, Lane],
        "queued": int,
        "max_queue_depth": int,
        "oldest_age_seconds": float | None,
        "drain_per_second": float | None,
    },
)
