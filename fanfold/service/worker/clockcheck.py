"""This machine's clock against AWS's: a process that is off does no work (R11)."""

from __future__ import annotations

from fanfold.engine.record.messages import RESUME, QueueName
from fanfold.service.wiring import Services

CLOCK_RESOLUTION = 2.0
"""Seconds of difference that an answer's `Date` header can't tell from none: it is cut to the second, and late."""


def clock_off(services: Services) -> float | None:
    """How many seconds AWS's clock is ahead of ours, if that is more than processes grant each other; else None."""
    offset = services.clock_offset()
    granted = max(services.settings.clock_skew_seconds, CLOCK_RESOLUTION)
    return offset if offset is not None and abs(offset) > granted else None


async def ask_the_time(services: Services, class_name: str) -> None:
    """Have AWS answer something: each answer has the time in it. Raises an `InfrastructureError` if it does not."""
    await services.queue.depth(QueueName(class_name=class_name, role=RESUME))
