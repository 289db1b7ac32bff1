"""Models of the HTTP API's answers. The OpenAPI document is generated from them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from fanfold.engine.record.run import Status
from fanfold.service.api.serialization import Outgoing, is_nothing


class Links(Outgoing):
    """Where to go from here, relative to the API's base URL.

    `stream` shows the events to whoever has it, without a token, for an hour: a browser's EventSource takes it. Only a
    token with the scope `read` is given one.
    """

    here: str = Field(serialization_alias="self")
    events: str
    stream: str | None = Field(default=None, exclude_if=is_nothing)


class WorkflowVersion(Outgoing):
    """A version of a workflow and when it was first registered."""

    version: str
    created_at: datetime


class WorkflowSummary(Outgoing):
    """A workflow and its current version."""

    name: str
    version: str
    created_at: datetime


class WorkflowView(WorkflowSummary):
    """A version of a workflow with its document, and all versions, newest first."""

    document: Any
    versions: list[WorkflowVersion]


class WorkflowList(Outgoing):
    """Workflows by name."""

    workflows: list[WorkflowSummary]
    next_cursor: str | None


class EstimateView(Outgoing):
    """How long a run accepted now would wait, as if its class's lanes were one queue.

    `starts_in_seconds` is null while nobody can tell: nothing has drained in the last minute or two.
    """

    ahead: int = Field(description="Accepted runs of the class that have not begun.")
    drain_per_second: float | None
    starts_in_seconds: float | None


class Accepted(Outgoing):
    """A run that was accepted and will be executed."""

    id: str
    status: Status
    workflow: str
    version: str
    created_at: datetime
    links: Links
    estimate: EstimateView | None = Field(default=None, exclude_if=is_nothing, description="Not on a replay.")


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


class ItemErrorView(Outgoing):
    """Why an item of a map failed."""

    index: int
    type: str
    message: str


class MapView(Outgoing):
    """A map: its items, and how many of them have ended, and have failed; null while nobody counted (`progress`).

    `via` says where they are worked on, `errors` are the first failures once the map has ended.
    """

    items: int
    via: Literal["inline", "stepfunctions"]
    done: int | None
    failed: int | None
    errors: list[ItemErrorView] = Field(default_factory=list, exclude_if=is_nothing)


class StepView(Outgoing):
    """A step of a run. `output` is any JSON, or a `BigValue`. Only a map that has begun has `map`."""

    status: str
    attempts: int
    started_at: datetime | None
    finished_at: datetime | None
    output: Any
    error: ErrorView | None
    map: MapView | None = Field(default=None, exclude_if=is_nothing)


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
    """A run. `input` and `output` are any JSON, or a `BigValue`; `steps` is in document order.

    Without the scope `read` inputs, outputs and errors are null in an operator's answers.
    """

    input: Any
    output: Any
    steps: dict[str, StepView]


class ListedRun(RunSummary):
    """A run in a list; `cursor` goes on after it.

    `unreadable` is one whose record this version of the service can't read (newer code wrote it, or it is damaged):
    only `id`, `created_at` and `error` mean anything then.
    """

    status: Status | Literal["unreadable"]  # type: ignore[assignment]  # a list may show what a single answer can't
    cursor: str


class RunList(Outgoing):
    """Runs, newest first. No `next_cursor` means that there are no more."""

    runs: list[ListedRun]
    next_cursor: str | None


class EventView(Outgoing):
    """One event of a run, and what it is about (`error`, `delay_seconds`, `data`, …)."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    seq: int
    at: datetime
    type: str


class EventList(Outgoing):
    """Events in ascending order without gaps. `last_seq` goes on after them; `end`: there will be no more."""

    events: list[EventView]
    last_seq: int
    end: bool


class StreamEnd(Outgoing):
    """The last thing a stream says: how the run ended, and the number of its last event."""

    status: Status
    last_seq: int


class SignalReceipt(Outgoing):
    """A signal was received: the `seq` of its event."""

    seq: int


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
    errors: list[ProblemError] = Field(default_factory=list, exclude_if=is_nothing)
    parameter: str | None = Field(default=None, exclude_if=is_nothing)
    estimate: EstimateView | None = Field(default=None, exclude_if=is_nothing, description="Of a full queue.")
    retry_after: int | None = Field(
        default=None, exclude_if=is_nothing, description="Within a batch: seconds, as the header says elsewhere."
    )


class BatchAccepted(Outgoing):
    """A run of a batch that was accepted (202), or had been before with the same key (200)."""

    status: int
    run: Accepted


class BatchRefused(Outgoing):
    """A run of a batch that was not accepted: the status and the problem it would have had alone.

    What a header would say beside a problem, when to come back (`retry_after`, seconds), is in it.
    """

    status: int
    problem: ProblemView


class BatchResults(Outgoing):
    """What became of each run of a batch, in the order they were sent."""

    results: list[BatchAccepted | BatchRefused]
