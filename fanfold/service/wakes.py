"""Wakes: messages that say «look at this run again». Never a truth, so never worth failing for."""

from __future__ import annotations

import math
from datetime import datetime

from fanfold.engine.record.messages import RESUME, QueueName, Wake
from fanfold.engine.record.run import Run
from fanfold.engine.rules.engine_limits import MAX_DELAY
from fanfold.service.wiring import Services


async def send_wake(services: Services, run: Run, at: datetime, *, map_step: str | None = None) -> None:
    """Send the run's wake so that it arrives at `at`, rounded up to a second, at most 15 minutes from now.

    With `map_step` the wake asks for a poll of that map.
    """
    delay = delay_until(at, services.clock.now())
    wake = Wake(
        tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name, map_step=map_step
    )
    queue = QueueName(class_name=run.class_name, role=RESUME)
    await services.queue.send(queue, wake, delay_seconds=delay)


def delay_until(at: datetime | None, now: datetime) -> int:
    """Whole seconds by which a message is to be delayed so as to arrive then or later, as far as SQS delays one."""
    seconds = 0.0 if at is None else (at - now).total_seconds()
    return math.ceil(min(max(seconds, 0.0), MAX_DELAY.total_seconds()))
