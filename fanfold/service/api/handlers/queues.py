"""Queues: the queued runs of each class, and how fast they begin."""

from __future__ import annotations

import asyncio

from fanfold.engine.record.messages import QueueName
from fanfold.service.api.access import Caller
from fanfold.service.api.handlers.context import Context
from fanfold.service.api.requests import Request
from fanfold.service.api.response_models import LaneView, QueueList, QueueView
from fanfold.service.api.responses import Answer
from fanfold.service.settings import ClassSettings


async def listing(context: Context, caller: Caller, request: Request) -> Answer:
    """Every class: `queued` is exact (slots taken), the lanes' numbers are SQS's approximations."""
    classes = context.services.settings.classes
    queues = await asyncio.gather(*(_queue(context, name, settings) for name, settings in classes.items()))
    return Answer(content=QueueList(queues=list(queues)))


async def _queue(context: Context, class_name: str, settings: ClassSettings) -> QueueView:
    names = [QueueName(class_name=class_name, role=lane) for lane in settings.lanes]
    load, depths = await asyncio.gather(
        context.services.slots.load(class_name),
        asyncio.gather(*(context.services.queue.depth(name) for name in names)),
    )
    oldest = load.oldest_accepted_at
    age = None if oldest is None else max(0.0, (context.services.clock.now() - oldest).total_seconds())
    return QueueView(
        class_name=class_name,
        lanes={
            lane: LaneView(queued=depth.visible + depth.delayed)
            for lane, depth in zip(settings.lanes, depths, strict=True)
        },
        queued=load.depth,
        max_queue_depth=load.limit,
        oldest_age_seconds=age,
        drain_per_second=load.drain_per_second,
    )
