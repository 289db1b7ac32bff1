"""The table of calls: method, path, scope, what goes in and out. The router and the OpenAPI document are made of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from functions.runtime.access import Scope
from functions.runtime.answers import Answer
from functions.runtime.calls import queues, runs, workflows
from functions.runtime.http import (
    Accepted,
    EventList,
    QueueList,
    RunList,
    RunView,
    WorkflowList,
    WorkflowSummary,
    WorkflowView,
)
from functions.runtime.incoming import EventsQuery, ListQuery, RunQuery, RunsQuery, SubmitBody, WorkflowQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the API. `handler` takes the desk, the caller, the request and the path's parameters.

    `answers` has the models of the good answers by status; `problems` the statuses of the bad ones
    beyond those every call has. A `document` body is a workflow, JSON or YAML.
    """

    method: str
    path: str
    name: str
    scope: Scope
    handler: Callable[..., Awaitable[Answer]]
    answers: Mapping[int, type[BaseModel]]
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    document: bool = False
    keyed: bool = False
    problems: tuple[int, ...] = field(default=())


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
        problems=(400, 413, 422),
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
        handler=runs.events,
        answers={200: EventList},
        query=EventsQuery,
        problems=(404, 422),
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
