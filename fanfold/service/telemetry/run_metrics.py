"""What is counted and said when a run's record moves on: from its journal, so that nothing is told that did not happen.

What a process committed and did not live to count is missing: metrics are a picture, the records are the books.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import Run, Status
from fanfold.service.telemetry.reporting import Metric, count, in_detail, logger, observe

_COUNTED = {
    EventType.STEP_SUCCEEDED: Metric.STEPS,
    EventType.STEP_FAILED: Metric.STEPS,
    EventType.STEP_RETRY_SCHEDULED: Metric.RETRIES,
    EventType.STEP_INTERRUPTED: Metric.INTERRUPTED,
}
_SAID = {EventType.STEP_FAILED, EventType.STEP_RETRY_SCHEDULED, EventType.STEP_INTERRUPTED}
"""Entries that have a line of their own: a failure, a retry, a loss."""


def new_entries(run: Run, since: int) -> Sequence[Entry]:
    """The journal's entries after `since`."""
    return run.journal[len(run.journal) - (run.last_seq - since) :] if run.last_seq > since else ()


def committed(before: Run, run: Run, entries: Sequence[Entry], workflow: Workflow) -> None:
    """A put of `run` over `before` was done: `entries` are what it added to the journal."""
    if _found_a_death(before, entries):
        count(Metric.CRASHES, of=(run.class_name,))
        logger().warning("a worker died while it held a run", extra=_facts(run))
    of_class = (run.class_name,)
    for entry in entries:
        metric = _COUNTED.get(entry.type)
        if metric is not None:
            count(metric, of=of_class)
        if entry.type is EventType.RUN_CLAIMED and run.epoch == 1:
            _begun(run, entry.at, workflow)
        if entry.type in _SAID:
            facts = {"step": entry.step, "attempt": entry.attempt, **_facts(run)}
            logger().info(entry.type.value, extra={**facts, "why": entry.data})
    if in_detail(run.id):
        logger().debug("committed", extra={**_facts(run), "did": [entry.type.value for entry in entries]})


def ended(run: Run, *, by_workflow: bool) -> None:
    """The run is terminal by this process's commit: its one line at INFO, and what it counts as."""
    assert run.finished_at is not None, "a terminal run has ended at a time"
    took = run.finished_at - run.created_at
    of_class = (run.class_name,)
    match run.status:
        case Status.SUCCEEDED:
            count(Metric.RUNS_SUCCEEDED, of=of_class)
        case Status.FAILED:
            count(Metric.RUNS_FAILED, of=of_class)
            if run.reason is not None:
                count(Metric.FAILURES, of=(run.reason.value,))
        case _:
            count(Metric.RUNS_CANCELLED, of=of_class)
    observe(Metric.RUN_DURATION, _milliseconds(took), of=of_class)
    if by_workflow:
        of_workflow = (run.workflow,)
        observe(Metric.WORKFLOW_DURATION, _milliseconds(took), of=of_workflow)
        if run.status is Status.SUCCEEDED:
            count(Metric.WORKFLOW_SUCCEEDED, of=of_workflow)
        elif run.status is Status.FAILED:
            count(Metric.WORKFLOW_FAILED, of=of_workflow)
    facts = {**_facts(run), "workflow": run.workflow, "status": run.status.value, "reason": run.reason}
    logger().info("run ended", extra={**facts, "seconds": took.total_seconds()})


def _found_a_death(before: Run, entries: Sequence[Entry]) -> bool:
    """Whether a claim found a holder's lease dead, or a resumption found that the holder died while it was paused."""
    taken_over = before.status is Status.RUNNING and any(entry.type is EventType.RUN_CLAIMED for entry in entries)
    return taken_over or any(entry.tells_of_a_crash for entry in entries)


def _begun(run: Run, at: datetime, workflow: Workflow) -> None:
    """Its first claim. A delayed run waits from when it may begin: its deadline counts from then, too."""
    may_begin = max(run.created_at, run.deadline - timedelta(seconds=workflow.timeout_seconds))
    count(Metric.RUNS_STARTED, of=(run.class_name,))
    observe(Metric.QUEUE_WAIT, max(0, _milliseconds(at - may_begin)), of=(run.class_name, run.lane))


def _facts(run: Run) -> dict[str, object]:
    return {"run_id": run.id, "epoch": run.epoch, "version": run.version}


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
