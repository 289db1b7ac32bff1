"""The HTTP API's own models: what comes in, checked once, and what goes out. The OpenAPI document is made of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from functions.engine.duration import parse_duration
from functions.engine.run import Status

MAX_WAIT_SECONDS = 25
"""API Gateway gives up after 30 s (HTTP API, hard): an answer must be on its way before."""
MAX_DELAY_SECONDS = 900
"""SQS delays a message by at most 15 minutes."""
MAX_TAGS = 20

TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,64}$")]
TagValue = Annotated[str, StringConstraints(max_length=256)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]


def rfc3339(at: datetime) -> str:
    """UTC with milliseconds, as `2026-11-30T16:28:00.123Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Incoming(BaseModel):
    """A stranger's document: a field it does not have is an error, so that no typing error is passed over."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Outgoing(BaseModel):
    """An answer; serialised by `to_json` alone."""

    model_config = ConfigDict(frozen=True)


def to_json(answer: object) -> bytes:
    """Compact ASCII JSON of models, times and plain values.

    Not pydantic's own serialiser: payloads in the answer may be nested deeper than it follows.
    """
    return json.dumps(answer, default=_plain, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain(value: object) -> object:
    match value:
        case BaseModel():
            fields = type(value).model_fields.items()
            given = {info.serialization_alias or name: getattr(value, name) for name, info in fields}
            return {**given, **(value.model_extra or {})}
        case datetime():
            return rfc3339(value)
        case _:
            raise TypeError(f"{type(value).__name__} is no part of an answer")


# --- what comes in ----------------------------------------------------------------------------


class SubmitBody(Incoming):
    """A run to be accepted."""

    workflow: Name = Field(description="Name of a registered workflow.")
    version: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="A version of it; without one, the current version."
    )
    input: Any = Field(default_factory=dict, description="Any JSON; `${input}` in the workflow's expressions.")
    lane: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="normal", description="Lane within the workflow's class."
    )
    tags: dict[TagName, TagValue] = Field(
        default_factory=dict, max_length=MAX_TAGS, description="Labels to find the run by."
    )
    delay: float | str = Field(
        default=0,
        description="Not before this long after acceptance: seconds, or a duration such as `30s`; at most 15 minutes. "
        "The workflow's timeouts count from then.",
    )

    @field_validator("delay", mode="before")
    @classmethod
    def _number_or_duration(cls, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError("a delay is a number of seconds or a duration such as 30s")
        if isinstance(value, str):
            seconds = parse_duration(value)
        elif not 0 <= value <= MAX_DELAY_SECONDS:  # before float(): an int may be too large for one
            raise ValueError(_DELAY_LIMIT)
        else:
            seconds = float(value)
        if seconds > MAX_DELAY_SECONDS:
            raise ValueError(_DELAY_LIMIT)
        return seconds


_DELAY_LIMIT = f"a delay is 0 to {MAX_DELAY_SECONDS} seconds (15 minutes, the limit of SQS)"


class RunQuery(Incoming):
    """How a run is to be shown."""

    wait: float = Field(default=0, ge=0, description="Seconds to wait for its end; more than 25 counts as 25.")
    steps: list[str] | None = Field(
        default=None, description="Only these steps, comma-separated; `none` for no steps at all."
    )
    inline: bool = Field(default=False, description="Big values themselves instead of references to them.")


class EventsQuery(Incoming):
    """Which events of a run."""

    after: int = Field(default=0, ge=0, description="Only events with a higher `seq`.")
    limit: int = Field(default=100, ge=1, le=1000, description="At most this many.")
    wait: float = Field(default=0, ge=0, description="Seconds to wait for the next one; more than 25 counts as 25.")


class ListQuery(Incoming):
    """Which page of a list."""

    limit: int = Field(default=50, ge=1, le=200, description="At most this many; a page may hold fewer.")
    cursor: Annotated[str, StringConstraints(max_length=2_000)] | None = Field(
        default=None, description="Where to go on: a `cursor` or `next_cursor` of this very listing."
    )


class RunsQuery(ListQuery):
    """Which runs."""

    status: list[Status] = Field(default_factory=list, description="Only these, comma-separated.")
    workflow: list[str] = Field(default_factory=list, description="Only runs of these workflows, comma-separated.")
    tag: list[str] = Field(
        default_factory=list, description="Only runs that have all these tags: `name`, `name:value` or `name=value`."
    )


class WorkflowQuery(Incoming):
    """Which version of a workflow."""

    version: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="Without one, the current version."
    )


# --- what goes out ----------------------------------------------------------------------------


class Links(Outgoing):
    """Where to go from here, relative to the API's base URL."""

    here: str = Field(serialization_alias="self")
    events: str


class WorkflowVersion(Outgoing):
    """A version of a workflow and when it was first registered."""

    version: str
    created_at: datetime


class WorkflowSummary(WorkflowVersion):
    """A workflow and its current version."""

    name: str


class WorkflowView(WorkflowSummary):
    """A version of a workflow with its document, and all versions, newest first."""

    document: Any
    versions: list[WorkflowVersion]


class WorkflowList(Outgoing):
    """Workflows by name."""

    workflows: list[WorkflowSummary]
    next_cursor: str | None


class Accepted(Outgoing):
    """A run that was accepted and will be executed."""

    id: str
    status: Status
    workflow: str
    version: str
    created_at: datetime
    links: Links


class ErrorView(Outgoing):
    """Why a run or step failed: a stable type for programs, a sentence for people."""

    type: str
    message: str


class BigValue(Outgoing):
    """A value too big for the answer: its size, its hash, and a URL that reads it for five minutes."""

    ref: str = Field(serialization_alias="$ref")
    bytes: int
    sha256: str
    url: str


class StepView(Outgoing):
    """A step of a run. `output` is any JSON, or a `BigValue`."""

    status: str
    attempts: int
    started_at: datetime | None
    finished_at: datetime | None
    output: Any
    error: ErrorView | None


class RunSummary(Outgoing):
    """A run without its payloads and steps."""

    id: str
    workflow: str
    version: str
    status: Status
    reason: str | None
    error: ErrorView | None
    class_name: str = Field(serialization_alias="class")
    lane: str
    tags: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    epoch: int
    links: Links


class RunView(RunSummary):
    """A run. `input` and `output` are any JSON, or a `BigValue`; `steps` is in document order."""

    input: Any
    output: Any
    steps: dict[str, StepView]


class ListedRun(RunSummary):
    """A run in a list; `cursor` goes on after it."""

    cursor: str


class RunList(Outgoing):
    """Runs, newest first. No `next_cursor` means that there are no more."""

    runs: list[ListedRun]
    next_cursor: str | None


class EventView(Outgoing):
    """One event of a run, and what it is about (`error`, `delay_seconds`, `data`, …)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    seq: int
    at: datetime
    type: str


class EventList(Outgoing):
    """Events in ascending order without gaps. `last_seq` goes on after them; `end`: there will be no more."""

    events: list[EventView]
    last_seq: int
    end: bool


class LaneView(Outgoing):
    """One lane's queue, approximately."""

    queued: int


class QueueView(Outgoing):
    """A class: its lanes, accepted runs not yet begun, their bound (0: none), and how fast they drain."""

    class_name: str = Field(serialization_alias="class")
    lanes: dict[str, LaneView]
    queued: int
    max_queue_depth: int
    oldest_age_seconds: float | None
    drain_per_second: float | None


class QueueList(Outgoing):
    """Every class of this deployment."""

    queues: list[QueueView]


class Health(Outgoing):
    """The service is there."""

    status: Literal["ok"]
    version: str


class ProblemError(Outgoing):
    """One of several things wrong, with an RFC 6901 pointer to it."""

    pointer: str
    detail: str


class ProblemView(Outgoing):
    """An RFC 9457 problem; `type` is a stable slug."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemError] = Field(default_factory=list)
    parameter: str | None = None
