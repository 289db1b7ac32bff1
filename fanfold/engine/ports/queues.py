"""Queues of messages, and the slots that bound how many runs wait in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fanfold.engine.errors import InfrastructureError, LimitExceeded
from fanfold.engine.record.messages import Message, QueueName, Received
from fanfold.engine.record.run import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """Approximate numbers of messages."""

    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to be sent with others, and for how long it is not to be delivered (0–900 s)."""

    message: Message
    delay_seconds: int = 0


NotSent = LimitExceeded | InfrastructureError
"""Why a message may not have been sent: only `Unanswered` leaves open whether it was."""


class WorkQueue(Protocol):
    """Queues with at-least-once delivery, visibility, delays up to 900 s."""

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        """Send one message; its tenant is its fairness group. Raises `LimitExceeded` (delay 0–900 s, 1 MiB)."""

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        """Send any number in as few calls as may be: what became of each, in order; None: it was sent.

        One message's error says nothing of the others. Raises none of these errors itself.
        """

    async def receive(
        self, queue: QueueName, *, limit: int, wait_seconds: int, visibility_seconds: int
    ) -> Sequence[Received]:
        """Up to `limit` (1–10) messages, waiting up to `wait_seconds` (0–20) for the first."""

    async def hide(self, messages: Sequence[Received], *, seconds: int) -> None:
        """Make these invisible for `seconds` (0–43,200) from now; receipts that are no longer valid are passed over."""

    async def delete(self, messages: Sequence[Received]) -> None:
        """Delete these; receipts that are no longer valid are passed over."""

    async def depth(self, queue: QueueName) -> QueueDepth:
        """How much is in the queue, approximately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLoad:
    """What the slots counters of a class say: `depth` slots taken, of `limit` (0: unbounded).

    `drain_per_second` is measured between the sweeper's last two samples (None before there are
    two); `oldest_accepted_at` is the oldest queued run the sweeper saw on its last pass.
    """

    class_name: str
    depth: int
    limit: int
    drain_per_second: float | None
    oldest_accepted_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A slot taken, and what its counter said with it: about how much is queued, and begins in a second.

    `drain_per_second` is None until the sweeper has taken a sample.
    """

    slot: Slot
    queued: int
    drain_per_second: float | None


def _always() -> bool:
    return True


class QueueSlots(Protocol):
    """Exact admission: a bounded counter of accepted runs that are still queued (R6)."""

    async def reserve(self, class_name: str, *, now: datetime) -> Reservation:
        """Take a slot. Raises `QueueFull`; never retried below this call."""

    async def give_back(self, class_name: str, slot: Slot, *, in_time: Callable[[], bool] = _always) -> None:
        """Return a slot taken before; never below zero, never retried below this call.

        `in_time` is asked last before the service is: if it says no, nothing is done (`Unavailable`).
        """

    async def load(self, class_name: str) -> ClassLoad:
        """What the counters say now."""

    async def held(self, class_name: str) -> Mapping[Slot, int]:
        """How many slots are taken by shard and hour, strongly consistent; where there are none, none is named."""

    async def write_off(self, class_name: str, slot: Slot, *, surplus: int, standing: int) -> bool:
        """Subtract leaked slots, provided exactly `standing` are still counted there; whether it was done.

        Written off slots have not drained. Never retried below this call; asked again after no
        answer, the condition tells.
        """

    async def sample(self, class_name: str, *, now: datetime, oldest_accepted_at: datetime | None) -> None:
        """Remember the drained total and the oldest queued run; adopt the configured bound, lowering first."""
