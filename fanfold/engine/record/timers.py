"""When somebody must look at a run though nothing happens to it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from fanfold.engine.record.run import Run, Status, StepState, StepStatus


def first_timer(deadline: datetime, steps: Iterable[StepState]) -> datetime:
    """When a clock alone brings something: a step falls due, or the run's deadline."""
    return min([deadline, *(step.due_at for step in steps if step.due_at is not None)])


def first_look(steps: Iterable[StepState]) -> datetime | None:
    """When the next look at a distributed map is due; None where there is no such map."""
    looks = (step.due_at for step in steps if step.map is not None and step.status is StepStatus.WAITING)
    return min((look for look in looks if look is not None), default=None)


def runnable(run: Run) -> bool:
    """Whether a waiting run is due for more than its next look at a map: a timer, or somebody left it so.

    Its `due_at` lies before all looks then (`before_looks`), and no look moves it: only a claim does.
    """
    look = first_look(run.steps.values())
    return run.status is Status.WAITING and run.due_at is not None and (look is None or run.due_at < look)


def before_looks(now: datetime, steps: Iterable[StepState]) -> datetime:
    """The `due_at` of a run that can go on now: what is due with a look at a map would only be looked at."""
    look = first_look(steps)
    return now if look is None else min(now, look - timedelta(milliseconds=1))
