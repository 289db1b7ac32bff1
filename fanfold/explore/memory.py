"""A deployment's services in memory, for one try."""

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
"""Polls up to this length are real waits: their caller has other work."""

FOREVER_SECONDS: Final = 366 * 86_400.0
"""Seconds; longer than any run."""


class EndlessPollQueue(MemoryQueue):
    """Queues whose long polls wait for a message, so that days without messages are one call."""

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

    Every record makes the round trip it makes in the real table. The default `queue` is an `EndlessPollQueue`.
    """
    queue, blobs = queue or EndlessPollQueue(clock), MemoryBlobs()
    fan_out = MemoryFanOut(blobs, queue)
    wired = Services(
        settings=settings,
        runs=MemoryRunStore(RunCodec(encode=to_item, decode=from_item)),
        queue=queue,
        slots=MemorySlots({name: c.max_queue_depth for name, c in settings.classes.items()}),
        blobs=blobs,
        catalog=MemoryCatalog(),
        tokens=MemoryTokens(),
        sweeper_state=MemorySweeperState(),
        secrets=MemorySecrets(),
        seats=MemorySeats(settings.max_watchers),
        map_records=MemoryMapRecords(),
        fan_out=fan_out,
        clock=clock,
        ids=ids,
    )
    return wired, fan_out
