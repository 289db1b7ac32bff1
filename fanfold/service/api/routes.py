"""The table of calls: method, path, scope, models. The router and the OpenAPI document use it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from fanfold.service.api.access import Scope
from fanfold.service.api.handlers import batch, control, events, queues, runs, workflows
from fanfold.service.api.request_models import (
    BatchBody,
    EventsQuery,
    ForkBody,
    Incoming,
    ListQuery,
    RunQuery,
    RunsQuery,
    SubmitBody,
    WorkflowQuery,
)
from fanfold.service.api.response_models import (
    Accepted,
    BatchResults,
    EventList,
    QueueList,
    RunList,
    RunView,
    SignalReceipt,
    WorkflowList,
    WorkflowSummary,
    WorkflowView,
)
from fanfold.service.api.responses import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the API. `handler` takes the context, the caller, the request and the path's parameters.

    A call without a `scope` needs no token, and its handler takes no caller. One that is `streamed`
    answers server-sent events too, or (without `answers`) nothing else.
    `answers` has the models of the good answers by status; `problems` the statuses of the bad ones
    beyond those every call has. A `document` body is a workflow, JSON or YAML; a `payload` is any JSON.
    """

    method: str
    path: str
    name: str
    scope: Scope | None
    handler: Callable[..., Awaitable[Answer]]
    answers: Mapping[int, type[BaseModel]]
    query: type[Incoming] | None = None
    body: type[BaseModel] | None = None
    document: bool = False
    payload: bool = False
    keyed: bool = False
    streamed: bool = False
    problems: tuple[int, ...] = field(default=())

    @property
    def accepts_runs(self) -> bool:
        """Whether the call creates runs."""
        return not {Accepted, BatchResults}.isdisjoint(self.answers.values())


def pattern(path: str) -> re.Pattern[str]:
    """A regular expression for a path with parameters in braces."""
    return re.compile("^" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "$")


CALLS: tuple[Call, ...] = (
    Call(
        method="PUT",
        path="/v1/workflows/{name}",
        name="registerWorkflow",
        scope=Scope.ADMIN,
        handler=workflows.register,
        answers={200: WorkflowSummary, 201: WorkflowSummary},
        document=True,
        problems=(400, 404, 413, 422),
    ),
    Call(
        method="GET",
        path="/v1/workflows",
        name="listWorkflows",
        scope=Scope.READ,
        handler=workflows.listing,
        answers={200: WorkflowList},
        query=ListQuery,
        problems=(400, 422),
    ),
    Call(
        method="GET",
        path="/v1/workflows/{name}",
        name="showWorkflow",
        scope=Scope.READ,
        handler=workflows.show,
        answers={200: WorkflowView},
        query=WorkflowQuery,
        problems=(404, 422),
    ),
    Call(
        method="POST",
        path="/v1/runs",
        name="submitRun",
        scope=Scope.SUBMIT,
        handler=runs.submit,
        answers={200: Accepted, 202: Accepted},
        body=SubmitBody,
        keyed=True,
        problems=(400, 404, 409, 413, 422, 429),
    ),
    Call(
        method="POST",
        path="/v1/runs/batch",
        name="submitRuns",
        scope=Scope.SUBMIT,
        handler=batch.submit,
        answers={200: BatchResults},
        body=BatchBody,
        keyed=True,
        problems=(400, 413, 422),
    ),
    Call(
        method="GET",
        path="/v1/runs",
        name="listRuns",
        scope=Scope.READ,
        handler=runs.listing,
        answers={200: RunList},
        query=RunsQuery,
        problems=(400, 422),
    ),
    Call(
        method="GET",
        path="/v1/runs/{id}",
        name="showRun",
        scope=Scope.READ,
        handler=runs.show,
        answers={200: RunView},
        query=RunQuery,
        problems=(404, 413, 422),
    ),
    Call(
        method="GET",
        path="/v1/runs/{id}/events",
        name="listEvents",
        scope=Scope.READ,
        handler=events.listing,
        answers={200: EventList},
        query=EventsQuery,
        streamed=True,
        problems=(404, 422),
    ),
    Call(
        method="GET",
        path="/v1/stream/{ticket}",
        name="streamEvents",
        scope=None,
        handler=events.stream,
        answers={},
        query=EventsQuery,
        streamed=True,
        problems=(404, 422),
    ),
    Call(
        method="POST",
        path="/v1/runs/{id}/cancel",
        name="cancelRun",
        scope=Scope.OPERATE,
        handler=control.cancel,
        answers={200: RunView, 202: RunView},
        problems=(404, 409),
    ),
    Call(
        method="POST",
        path="/v1/runs/{id}/pause",
        name="pauseRun",
        scope=Scope.OPERATE,
        handler=control.pause,
        answers={200: RunView, 202: RunView},
        problems=(404, 409),
    ),
    Call(
        method="POST",
        path="/v1/runs/{id}/resume",
        name="resumeRun",
        scope=Scope.OPERATE,
        handler=control.resume,
        answers={200: RunView, 202: RunView},
        problems=(404, 409),
    ),
    Call(
        method="POST",
        path="/v1/runs/{id}/redrive",
        name="redriveRun",
        scope=Scope.OPERATE,
        handler=control.redrive,
        answers={200: RunView, 202: RunView},
        keyed=True,
        problems=(404, 409, 422),
    ),
    Call(
        method="POST",
        path="/v1/runs/{id}/signals/{name}",
        name="signalRun",
        scope=Scope.OPERATE,
        handler=control.signal,
        answers={200: SignalReceipt, 202: SignalReceipt},
        payload=True,
        keyed=True,
        problems=(400, 404, 409, 413, 422),
    ),
    Call(
        method="POST",
        path="/v1/runs/{id}/fork",
        name="forkRun",
        scope=Scope.OPERATE,
        handler=control.fork,
        answers={200: Accepted, 202: Accepted},
        body=ForkBody,
        keyed=True,
        problems=(400, 404, 409, 413, 422, 429),
    ),
    Call(
        method="GET",
        path="/v1/queues",
        name="listQueues",
        scope=Scope.READ,
        handler=queues.listing,
        answers={200: QueueList},
    ),
)
