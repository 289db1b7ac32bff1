"""What the OpenAPI document shows of each body and answer: one small workflow, and a run of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from fanfold.engine.errors import NotFound, QueueFull, Unavailable, ValidationIssue, WrongState
from fanfold.service.api.problems import (
    INTERNAL,
    Problem,
    forbidden,
    invalid_body,
    malformed,
    problem_of,
    too_large,
    unauthorized,
)
from fanfold.service.api.response_models import (
    Accepted,
    BatchResults,
    EventList,
    Health,
    QueueList,
    RunList,
    RunView,
    SignalReceipt,
    WorkflowList,
    WorkflowSummary,
    WorkflowView,
)

_VERSION: Final = "sha256:0d1c7e57a0a4b41c5d64d4e0f8b7f1f8ce3b02ab0e5ac1f2e4b6e3c0b8a1d2f3"
_AT: Final = "2026-11-02T09:30:00.000Z"
_LATER: Final = "2026-11-02T09:30:00.250Z"
_ID: Final = "r01jc9w3k8m2x5v7b4n6q1t0hz"
_STEPS: Final = {
    "greet": {"task": "core.echo", "input": {"text": "Hello ${input.who}"}},
    "approved": {"wait": {"signal": "approve", "timeout": "24h"}, "needs": ["greet"]},
}
_DOCUMENT: Final = {"name": "greeting", "steps": _STEPS, "output": "${steps.greet.output}"}
_DOCUMENT_AS_YAML: Final = """\
name: greeting
steps:
  greet: {task: core.echo, input: {text: "Hello ${input.who}"}}
  approved: {wait: {signal: approve, timeout: 24h}, needs: [greet]}
output: ${steps.greet.output}
"""
_SUBMIT: Final = {"workflow": "greeting", "input": {"who": "Ada"}, "tags": {"team": "blue"}}

DOCUMENTS: Final[Mapping[str, Any]] = {"application/json": _DOCUMENT, "application/yaml": _DOCUMENT_AS_YAML}
"""A workflow in each language that has an example of its own; other types of YAML are as the second."""

BODIES: Final[Mapping[str, Any]] = {
    "submitRun": _SUBMIT,
    "submitRuns": {"runs": [_SUBMIT, {"workflow": "greeting", "input": {"who": "Grace"}, "delay": "30s"}]},
    "signalRun": {"approved": True, "by": "Ada"},
    "forkRun": {"from_step": "greet"},
}
"""By the name of the call."""

PARAMETERS: Final[Mapping[str, str]] = {
    "Idempotency-Key": "order-4711",
    "Last-Event-ID": "3",
    "id": _ID,
}
"""Of a call's path and headers, by their name, wherever it is the same thing."""

NAMES: Final[Mapping[str, str]] = {"workflows": "greeting", "runs": "approve"}
"""What `{name}` is the name of: a workflow, or a signal of a run."""

_LINKS: Final = {
    "self": f"v1/runs/{_ID}",
    "events": f"v1/runs/{_ID}/events",
    "stream": "v1/stream/acme.r01jc9w3k8m2x5v7b4n6q1t0hz.1793615400.c2lnbmVk",
}
_SUMMARY: Final = {"name": "greeting", "version": _VERSION, "created_at": _AT}
_ESTIMATE: Final = {"ahead": 12, "drain_per_second": 4.0, "starts_in_seconds": 3.0}
_ACCEPTED: Final = {
    "id": _ID,
    "status": "queued",
    "workflow": "greeting",
    "version": _VERSION,
    "created_at": _AT,
    "links": _LINKS,
    "estimate": _ESTIMATE,
}
_RUN: Final = {
    "id": _ID,
    "workflow": "greeting",
    "version": _VERSION,
    "status": "waiting",
    "reason": None,
    "error": None,
    "class": "model",
    "lane": "normal",
    "tags": {"team": "blue"},
    "created_at": _AT,
    "started_at": _LATER,
    "finished_at": None,
    "epoch": 1,
    "links": _LINKS,
}
_GREETED: Final = {
    "status": "succeeded",
    "attempts": 1,
    "started_at": _LATER,
    "finished_at": _LATER,
    "output": {"text": "Hello Ada"},
    "error": None,
}
_WAITS: Final = {
    "status": "waiting",
    "attempts": 0,
    "started_at": _LATER,
    "finished_at": None,
    "output": None,
    "error": None,
}
PROBLEMS: Final[Mapping[int, Problem]] = {
    400: malformed("line 1, column 13: a value is missing").problem,
    401: unauthorized("there is no bearer token").problem,
    403: forbidden("the token lacks the scope submit").problem,
    404: problem_of(NotFound(f"there is no run {_ID!r}")),
    409: problem_of(WrongState("cancel", "succeeded")),
    413: too_large("the body is over 5,000,000 bytes").problem,
    422: invalid_body((ValidationIssue(pointer="/workflow", detail="it is missing"),)).problem,
    429: problem_of(QueueFull("model", limit=10_000, retry_after_seconds=7, drain_per_second=4.0)),
    500: INTERNAL,
    503: problem_of(Unavailable("dynamodb")),
}
"""One of each status."""

ANSWERS: Final[Mapping[type[BaseModel], Any]] = {
    Accepted: _ACCEPTED,
    BatchResults: {
        "results": [
            {"status": 202, "run": _ACCEPTED},
            {
                "status": 404,
                "problem": problem_of(NotFound("there is no workflow 'greetign'")).content(),
            },
        ]
    },
    EventList: {
        "events": [
            {"seq": 1, "at": _AT, "type": "run.accepted"},
            {"seq": 2, "at": _LATER, "type": "step.started", "step": "greet", "attempt": 1},
        ],
        "last_seq": 2,
        "end": False,
    },
    Health: {"status": "ok", "version": "0.1.0"},
    QueueList: {
        "queues": [
            {
                "class": "model",
                "lanes": {"high": {"queued": 0}, "normal": {"queued": 12}, "low": {"queued": 3}},
                "queued": 15,
                "max_queue_depth": 10_000,
                "oldest_age_seconds": 4.2,
                "drain_per_second": 4.0,
            }
        ]
    },
    RunList: {"runs": [{**_RUN, "cursor": "b3BhcXVl"}], "next_cursor": "b3BhcXVl"},
    RunView: {**_RUN, "input": {"who": "Ada"}, "output": None, "steps": {"greet": _GREETED, "approved": _WAITS}},
    SignalReceipt: {"seq": 9},
    WorkflowList: {"workflows": [_SUMMARY], "next_cursor": None},
    WorkflowSummary: _SUMMARY,
    WorkflowView: {
        **_SUMMARY,
        "document": _DOCUMENT,
        "versions": [{"version": _VERSION, "created_at": _AT}],
    },
}
"""By the model of the answer."""
