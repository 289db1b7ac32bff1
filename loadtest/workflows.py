"""The workflows that scenarios submit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIAMOND: Mapping[str, Any] = {
    "name": "load-diamond",
    "steps": {
        "seed": {"task": "core.echo"},
        "left": {"task": "core.echo", "needs": ["seed"]},
        "right": {"task": "core.echo", "needs": ["seed"]},
        "combine": {"task": "core.collect", "needs": ["left", "right"]},
    },
    "output": "${steps.combine.output}",
}
"""Four tasks that do nothing: what is left is the engine."""

COUNTED_DIAMOND: Mapping[str, Any] = {
    **DIAMOND,
    "name": "load-counted-diamond",
    "steps": {
        "seed": {"task": "chaos.effect"},
        "left": {"task": "chaos.effect", "needs": ["seed"]},
        "right": {"task": "chaos.effect", "needs": ["seed"]},
        "combine": {"task": "chaos.effect", "needs": ["left", "right"]},
    },
}
"""The same, each execution a line of the ledger."""


def counted_call(*, counted: bool) -> Mapping[str, Any]:
    """One call that takes as many milliseconds as the run's input says (`ms`), as a model's would.

    `counted`: each execution is a line of the ledger; elsewhere it is the mock model, which adds its own ± 25 %.
    """
    if counted:
        step = {"task": "chaos.effect", "input": {"ms": "${input.ms}"}}
    else:
        step = {"task": "mock.model", "input": {"prompt": "load", "latency_ms": "${input.ms}"}}
    return {"name": "load-counted-call" if counted else "load-mock-call", "steps": {"call": step}}


def in_class(document: Mapping[str, Any], class_name: str) -> Mapping[str, Any]:
    """The same workflow, worked on by another class."""
    return {**document, "name": f"{document['name']}-{class_name}", "class": class_name}


BUSY: Mapping[str, Any] = {
    "name": "load-busy",
    "steps": {"busy": {"task": "chaos.emit", "input": {"count": 3600, "every_ms": 500}}},
}
"""Keeps a worker's place, and its store busy with a commit a second, until it is cancelled."""


def model_call(latency_ms: int) -> Mapping[str, Any]:
    """One call of the mock model, which takes so long (± 25 %)."""
    return {
        "name": f"load-call-{latency_ms}",
        "steps": {"call": {"task": "mock.model", "input": {"prompt": "load", "latency_ms": latency_ms}}},
    }


def review(latency_ms: int) -> Mapping[str, Any]:
    """A leader, three reviewers at the same time, a verdict; each model call takes so long (± 25 %)."""
    call = {"task": "mock.model", "input": {"prompt": "load", "latency_ms": latency_ms}}
    reviewers = {name: {**call, "needs": ["leader"]} for name in ("security", "tester", "writer")}
    verdict = {"task": "core.collect", "needs": list(reviewers)}
    return {"name": f"load-review-{latency_ms}", "steps": {"leader": call, **reviewers, "verdict": verdict}}
