"""Lanes that have runs to begin, and nobody who takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.doctor.runs import LATE, minutes, named
from fanfold.engine.ports import QueueDepth
from fanfold.engine.record.messages import RESUME, QueueName
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.lease import held
from fanfold.service.engine_limits import engine_limits
from fanfold.service.wiring import Services


def find(deployment: Deployment) -> Iterator[Finding]:
    """Queues with visible messages and none in flight, whose runs could have begun minutes ago.

    A class that holds a run has workers, and waiting runs there are load. Without a visible message the sweeper sends a
    wake again. SQS's numbers are approximate.
    """
    limits, now = engine_limits(deployment.settings), deployment.now
    working = {run.class_name for run in deployment.census.runs if held(run, now, limits)}
    waiting: dict[QueueName, list[Run]] = defaultdict(list)
    for run in deployment.census.runs:
        known = deployment.settings.classes.get(run.class_name)
        if run.status is not Status.QUEUED or known is None or run.class_name in working:
            continue
        role = run.lane if run.epoch == 0 else RESUME
        if role in (*known.lanes, RESUME) and _could_begin(run) + LATE < now < (run.queue_deadline or run.deadline):
            waiting[QueueName(class_name=run.class_name, role=role)].append(run)
    depths = deployment.ask(partial(_depths, queues=waiting)) if waiting else {}
    for queue, runs in waiting.items():
        if depths[queue].visible and depths[queue].in_flight == 0:
            yield _idle(queue, runs, depths[queue])


def _could_begin(run: Run) -> datetime:
    """Since when it could have been taken up: a resumption or a redrive is the last that happened to it."""
    last = [run.journal[-1].at] if run.journal else []
    return max([run.created_at, *last, *([run.not_before] if run.not_before is not None else [])])


async def _depths(services: Services, *, queues: Iterable[QueueName]) -> Mapping[QueueName, QueueDepth]:
    return {queue: await services.queue.depth(queue) for queue in queues}


def _idle(queue: QueueName, runs: Sequence[Run], depth: QueueDepth) -> Finding:
    lane = "resume" if queue.role == RESUME else f"lane {queue.role}"
    lanes = "" if queue.role == RESUME else f" --lanes {queue.role}"
    messages = "1 message waits" if depth.visible == 1 else f"{depth.visible} messages wait"
    return Finding(
        what=f"Nobody works on {lane} of class {queue.class_name}: {named(runs)} could have begun over {minutes()}"
        f" minutes ago, {messages} in queue {queue}, and nobody has taken any.",
        why="There is no worker for it: its mapping is off or gone, no worker process runs, or none that takes this"
        " queue. Runs wait until their deadline.",
        fix="A mapping that is missing or off is told of above. Else start a worker:"
        f" fanfold worker --class {queue.class_name}{lanes} (docs/operations.md#oldest-message).",
    )


CHECK = Check(name="workers", looks_at="lanes whose runs nobody takes up", find=find)
