"""A deployment's services in memory, for as long as one run is played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.adapters.memory import (
    MemoryBlobs,
    MemoryCatalog,
    MemoryFanOut,
    MemoryMapRecords,
    MemoryQueue,
    MemoryRunStore,
    MemorySeats,
    MemorySecrets,
    MemorySlots,
    MemorySweeperState,
    MemoryTokens,
    RunCodec,
)
from fanfold.adapters.memory.queue import GRAIN_SECONDS
from fanfold.engine.ports import Clock, Ids
from fanfold.engine.record.messages import QueueName, Received
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services

SHORT_POLL_SECONDS: Final = 1
"""Who waits no longer than this has something else to do."""

FOREVER_SECONDS: Final = 366 * 86_400.0
"""Longer than any run."""


class PatientQueue(MemoryQueue):
    """Queues whose long polls wait until there is something: days of polls that bring nothing are one call."""

    async def receive(
        self, queue: QueueName, *, limit: int, wait_seconds: int, visibility_seconds: int
    ) -> Sequence[Received]:
        """See `WorkQueue.receive`; a wait of over a second ends with a message only."""
        if wait_seconds <= SHORT_POLL_SECONDS:
            return await super().receive(
                queue, limit=limit, wait_seconds=wait_seconds, visibility_seconds=visibility_seconds
            )
        while not (taken := self._take(queue, limit, visibility_seconds)):
            hidden = self._queue(queue).hidden
            seconds = hidden[0][0] - self._clock.monotonic() if hidden else FOREVER_SECONDS
            await self._change(queue, max(seconds, GRAIN_SECONDS))
        return taken


def memory_services(
    settings: Settings, clock: Clock, ids: Ids, *, queue: MemoryQueue | None = None
) -> tuple[Services, MemoryFanOut]:
    """Empty services, and the fan-out among them, which still lacks its function.

    Every record makes the round trip it makes in the real table. Without a `queue` there is a patient one.
    """
    queue, blobs = queue or PatientQueue(clock), MemoryBlobs()
    fan_out = MemoryFanOut(blobs, queue)
    wired = Services(
        settings=settings,
        runs=MemoryRunStore(RunCodec(encode=to_item, decode=from_item)),
        queue=queue,
        slots=MemorySlots({name: c.max_queue_depth for name, c in settings.classes.items()}),
        blobs=blobs,
        catalog=MemoryCatalog(),
        tokens=MemoryTokens(),
        marks=MemorySweeperState(),
        secrets=MemorySecrets(),
        seats=MemorySeats(settings.max_watchers),
        map_records=MemoryMapRecords(),
        fan_out=fan_out,
        clock=clock,
        ids=ids,
    )
    return wired, fan_out
