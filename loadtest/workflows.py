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
