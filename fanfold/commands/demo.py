"""`fanfold demo`: a run whose worker is killed, and which finishes nevertheless.

The demo checks what it shows: the journal has two claims, and a ledger outside the run's record counts the executions
of each step. Any difference is an error.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fanfold.client.results import Event, Run
from fanfold.client.sync_client import Client
from fanfold.commands import run_progress
from fanfold.local.cdk_app import Report
from fanfold.local.local_stack import LocalError, LocalStack

FAILED = 1
"""The exit status of a demo that failed."""

START_SECONDS = 60.0
"""The first calls of fresh functions take seconds on a slow machine."""

FINISH_SECONDS = 30.0
"""The longest time from the kill to the run's end: a lease (5 s here), a delivery, and the steps again."""

POLL_SECONDS = 0.2

STEP_MS = 2000


def _step(*needs: str) -> dict[str, Any]:
    # The effect is written at the step's end, so an attempt that is killed leaves none.
    retry = {"max_attempts": 3}
    return {"task": "chaos.effect", "needs": list(needs), "input": {"ms": "${input.step_ms}"}, "retry": retry}


DOCUMENT: Mapping[str, Any] = {
    "name": "demo-diamond",
    "timeout": "5m",
    "steps": {
        "seed": {**_step(), "input": {"ms": 200}},
        "left": _step("seed"),
        "right": _step("seed"),
        "combine": {**_step("left", "right"), "input": {"ms": 200}},
    },
    "output": {"left": "${steps.left.output}", "right": "${steps.right.output}"},
}
"""A diamond that is slow enough in its middle to be killed there."""


@dataclass(slots=True)
class _Story:
    """The events so far."""

    last_seq: int = 0
    last_at: float = 0.0
    claims: list[str] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)
    killed_pid: int | None = None
    killed_at: float = 0.0
    ended: bool = False

    def add(self, event: Event) -> None:
        self.last_seq, self.last_at = event["seq"], time.monotonic()
        step = event.get("step", "")
        match event["type"]:
            case "run.claimed":
                self.claims.append(str(event.get("worker", "")))
            case "step.started":
                self.started.add(step)
            case "step.succeeded":
                self.succeeded.add(step)
            case "run.succeeded" | "run.failed" | "run.cancelled":
                self.ended = True

    @property
    def in_the_middle(self) -> bool:
        """The first step has ended, both that need it have begun, and neither has ended."""
        return "seed" in self.succeeded and {"left", "right"} <= self.started - self.succeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of the demo: the finished run, the killed process, the executions of each step."""

    run: Run
    killed_pid: int
    seconds_from_kill: float
    executions: Mapping[str, int]


def demonstrate(stack: LocalStack, *, report: Report) -> Outcome:
    """Submit the diamond, kill the process that holds it, wait for its end. Raises `LocalError` if the demo failed."""
    if stack.pid is None:
        raise LocalError(
            "The demo kills a worker process, so it needs an emulator of its own: `fanfold down` first.", status=2
        )
    if stack.options.get("workers") == "none":
        raise LocalError("The stack is up without workers: repeat `fanfold up`, then the demo.", status=2)
    with Client(stack.api_url, stack.token) as client:
        client.apply(DOCUMENT)
        accepted = client.submit("demo-diamond", {"step_ms": STEP_MS})
        report(f"Submitted run {accepted['id']}.")
        story = _watch(client, accepted["id"], stack, report)
        run = client.get(accepted["id"])
    outcome = Outcome(
        run=run,
        killed_pid=story.killed_pid or 0,
        seconds_from_kill=round(time.monotonic() - story.killed_at, 1),
        executions=_executions(Path(stack.ledger), run["id"]),
    )
    _check(outcome, story)
    return outcome


def _watch(client: Client, run_id: str, stack: LocalStack, report: Report) -> _Story:
    """Report events as they arrive, and kill the worker in the middle."""
    story = _Story(last_at=time.monotonic())
    began = time.monotonic()
    lease_seconds = float(stack.env.get("FANFOLD_LEASE_SECONDS", "5"))
    told = -1
    while not story.ended:
        for event in client.events(run_id, after=story.last_seq, follow=False):
            story.add(event)
            report(run_progress.line(event))
        if story.killed_pid is None:
            if story.in_the_middle:
                story.killed_pid = _kill(story.claims[-1], stack, report)
                story.killed_at = time.monotonic()
            elif time.monotonic() - began > START_SECONDS:
                raise LocalError(f"Run {run_id} never came to its middle: there was nobody to kill.", status=FAILED)
        elif len(story.claims) == 1:
            left = max(0, math.ceil(lease_seconds - (time.monotonic() - story.last_at)))
            if left != told:
                told = left
                report(
                    f"      … its lease ends in {left} s" if left else "      … its lease has ended; who comes next?"
                )
        if story.killed_pid is not None and time.monotonic() - story.killed_at > FINISH_SECONDS:
            raise LocalError(f"Run {run_id} has not ended within {FINISH_SECONDS:g} s of the kill.", status=FAILED)
        if not story.ended:
            time.sleep(POLL_SECONDS)
    if story.killed_pid is None:
        raise LocalError(f"Run {run_id} ended before its worker could be killed.", status=FAILED)
    return story


def _kill(worker: str, stack: LocalStack, report: Report) -> int:
    """SIGKILL to the process that the journal names, provided that it is one of this stack's."""
    pid = int(worker.rpartition(":")[2]) if worker.rpartition(":")[2].isdigit() else 0
    try:
        ours = pid > 0 and os.getpgid(pid) == stack.pid
        if ours:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        ours = False
    if not ours:
        raise LocalError(f"The run's worker {worker!r} is no process of this stack; nothing was killed.", status=FAILED)
    report(f"      ✗ SIGKILL to process {pid}, which holds the run. Nobody tells the others; its lease has to run out.")
    return pid


def _executions(ledger: Path, run_id: str) -> Mapping[str, int]:
    """How often each step of the run wrote its effect."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    entries = [json.loads(line) for line in lines]
    return dict(Counter(entry["step"] for entry in entries if entry["run"] == run_id))


def _check(outcome: Outcome, story: _Story) -> None:
    run = outcome.run
    wrong = []
    if run["status"] != "succeeded":
        wrong.append(f"it {run['status']}")
    if run["epoch"] != 2 or len(story.claims) != 2:
        wrong.append(f"it was claimed {run['epoch']} times instead of 2")
    for step in run["steps"]:
        if (times := outcome.executions.get(step, 0)) != 1:
            wrong.append(f"step {step} was executed {times} times")
    if wrong:
        raise LocalError(f"Run {run['id']} did not do what was promised: {', '.join(wrong)}.", status=FAILED)
