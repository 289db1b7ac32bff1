"""What becomes of a message: it has served, or it comes again, here or elsewhere, as itself or as a copy (R5, R7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from fanfold.engine.errors import InfrastructureError, Throttled
from fanfold.engine.record.messages import RESUME, Envelope, Message, QueueName, Received, Wake
from fanfold.engine.rules.engine_limits import MAX_DELAY
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wiring import Services

CLOCK_OFF_SECONDS = 5
"""How long a message that came to a process whose clock is off waits for another. It is nobody's fault: this does not
grow and counts nothing. Without any a lone process would spin."""

OUTAGE_DELAY = timedelta(seconds=60)
"""First delay of a message that met an infrastructure failure; it doubles with each further one (R5)."""

THROTTLE_DELAY = timedelta(seconds=5)
"""The same where it was refused for load, and nothing was done: an outage's minute would leave a limit unused."""

UNREADABLE_SECONDS = 60
"""How long a message that can't be read is hidden; after ten deliveries it is a dead letter."""

BUG_SECONDS = 60
"""When a message is looked at again whose handling raised what no code declares."""


def back_after(error: InfrastructureError, outages: int) -> timedelta:
    """When a message that met this failure is to come again, having met so many before."""
    first = THROTTLE_DELAY if isinstance(error, Throttled) else OUTAGE_DELAY
    return min(first * (1 << min(outages, 8)), MAX_DELAY)


@dataclass(frozen=True, slots=True)
class Ack:
    """The message has served: delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeliver:
    """Show the message again after this many seconds."""

    seconds: int


Disposition = Ack | Redeliver
RunIsolated = Callable[[Received], Awaitable[Disposition]]


def _copy(received: Received, message: Message, *, outages: int) -> Message:
    """A copy to send in a message's stead. It begins with no receipts, so an envelope says itself that it had some."""
    if isinstance(message, Envelope):
        return replace(message, outages=outages, again=message.again or received.receives > 1)
    return replace(message, outages=outages)


def wake_of(message: Message) -> Wake:
    """A message that asks for a look at the same run."""
    if isinstance(message, Wake):
        return message
    return Wake(
        tenant=message.tenant,
        run_id=message.run_id,
        submission=message.submission,
        class_name=message.class_name,
    )


class Redelivery:
    """Sends messages on their way when they are not worked on here. Each answers what becomes of the one received."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def unreadable(self, received: Received) -> Disposition:
        """What can't be read waits for code that can, or becomes a dead letter (R12, R13)."""
        count(Metric.UNREADABLE)
        logger().error(
            "a message can't be read" if not received.newer else "a message is newer than this code",
            extra={"queue": str(received.queue), "message_id": received.message_id},
        )
        return Redeliver(seconds=UNREADABLE_SECONDS)

    async def apart(self, message: Message) -> Disposition:
        """Move a message to the `resume` queue, where suspects are alone."""
        await self._services.queue.send(QueueName(class_name=message.class_name, role=RESUME), message)
        return Ack()

    async def decline(self, received: Received, message: Message, offset: float) -> Disposition:
        """A process whose clock is off works on nothing (R11): others take the message, as if it had not come here."""
        count(Metric.CLOCK_OFF)
        logger().error(f"this machine's clock is {offset:+.1f} s off AWS's", extra={"run_id": message.run_id})
        try:
            copy = _copy(received, message, outages=message.outages)
            await self._services.queue.send(received.queue, copy, delay_seconds=CLOCK_OFF_SECONDS)
        except InfrastructureError:
            return Redeliver(seconds=CLOCK_OFF_SECONDS)
        return Ack()

    async def note_bug(self, message: Message, error: Exception) -> Disposition:
        """A bug may be met once by chance. The message goes apart as a copy that says so, and may then end its run."""
        logger().error("a message could not be handled", exc_info=error, extra={"run_id": message.run_id})
        queue = QueueName(class_name=message.class_name, role=RESUME)
        try:
            await self._services.queue.send(queue, replace(message, raised=True), delay_seconds=BUG_SECONDS)
        except InfrastructureError:
            return Redeliver(seconds=BUG_SECONDS)
        return Ack()

    async def put_back(self, received: Received, message: Message, error: InfrastructureError) -> Disposition:
        """An infrastructure failure is nobody's crash: a copy goes back, so that receives count crashes only (R5)."""
        count(Metric.OUTAGES)
        logger().error(
            "a service failed; the message goes back", extra={"run_id": message.run_id, "error": repr(error)}
        )
        seconds = int(back_after(error, message.outages).total_seconds())
        try:
            copy = _copy(received, message, outages=message.outages + 1)
            await self._services.queue.send(received.queue, copy, delay_seconds=seconds)
        except InfrastructureError:
            return Redeliver(seconds=seconds)
        return Ack()
