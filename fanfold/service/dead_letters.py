"""Dead letters: lost envelopes are sent again, and no run fails (R13)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import RunKey
from fanfold.engine.record.messages import Envelope, QueueName, Received
from fanfold.engine.record.run import Run, Status
from fanfold.engine.rules.engine_limits import ENVELOPE_LIFE, MAX_DELAY
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services

UNREADABLE_SECONDS = 900
"""Seconds until a message that stays is received again; the code may be newer by then."""


async def revive(services: Services, messages: Sequence[Received], *, now: datetime) -> Sequence[str]:
    """Handle dead letters. Returns the ids of those that stay; the others may be deleted.

    An envelope whose run has no record yet, or is still queued, is sent to its lane again, to arrive in
    15 minutes. Any other message is dropped: the record brings its run back (R4). What can't be read,
    and what could not be looked up or sent, stays.
    """
    count(Metric.DEAD_LETTERS, len(messages))
    stays = await asyncio.gather(*(_contained(services, received, now) for received in messages))
    return [received.message_id for received, stay in zip(messages, stays, strict=True) if stay]


async def _contained(services: Services, received: Received, now: datetime) -> bool:
    """One letter's trouble is its own: it stays, the others go their way."""
    try:
        return await _stays(services, received, now)
    except Exception:
        logger().exception("a dead letter could not be looked at", extra={"message_id": received.message_id})
        return await _put_off(services, received)


async def _stays(services: Services, received: Received, now: datetime) -> bool:
    if received.message is None:
        count(Metric.UNREADABLE)
        what = "a dead letter is newer than this code" if received.newer else "a dead letter can't be read"
        logger().error(what, extra={"queue": str(received.queue), "message_id": received.message_id})
        return await _put_off(services, received)
    if not isinstance(received.message, Envelope):
        return _drop(received.message.run_id, "a wake is only a hint")
    envelope = received.message
    lane = QueueName(class_name=envelope.class_name, role=envelope.lane)
    classes = services.settings.classes
    if envelope.class_name not in classes or envelope.lane not in classes[envelope.class_name].lanes:
        logger().error("a dead letter's lane is not configured", extra={"run_id": envelope.run_id, "queue": str(lane)})
        return await _put_off(services, received)
    try:
        record = await services.runs.get(RunKey(tenant=envelope.tenant, run_id=envelope.run_id), now=now)
        why = _done_with(envelope, record, now)
        if why is not None:
            return _drop(envelope.run_id, why)
        await services.queue.send(lane, replace(envelope, again=True), delay_seconds=int(MAX_DELAY.total_seconds()))
    except InfrastructureError as error:
        logger().warning("a dead letter stays for now", extra={"run_id": envelope.run_id, "error": repr(error)})
        return True
    count(Metric.REPAIRED)
    logger().info("a dead letter is sent to its lane again", extra={"run_id": envelope.run_id, "queue": str(lane)})
    return False


def _done_with(envelope: Envelope, record: Run | None, now: datetime) -> str | None:
    """Why the envelope has nothing to do any more, or None when its run needs it."""
    if record is None:
        return "an envelope older than 14 days creates no run" if now - envelope.accepted_at > ENVELOPE_LIFE else None
    if record.submission != envelope.submission:
        return "another submission owns the run"
    return None if record.status is Status.QUEUED else f"the run is further on: {record.status}"


def _drop(run_id: str, why: str) -> bool:
    count(Metric.DROPPED)
    logger().warning("a dead letter is dropped", extra={"run_id": run_id, "why": why})
    return False


async def _put_off(services: Services, received: Received) -> bool:
    """It stays; whether it is looked at again soon or late is not worth failing for."""
    try:
        await services.queue.hide([received], seconds=UNREADABLE_SECONDS)
    except InfrastructureError as error:
        logger().warning("a dead letter was not hidden", extra={"error": repr(error)})
    return True
