"""The services in memory, on a clock the test moves."""

from __future__ import annotations

from functions.adapters.items import from_item, to_item
from functions.adapters.maprecords import MemoryMapRecords
from functions.adapters.marks import MemoryMarks
from functions.adapters.memory import (
    MemoryBlobs,
    MemoryCatalog,
    MemoryFanOut,
    MemoryPlaces,
    MemoryQueue,
    MemoryRunStore,
    MemoryTokens,
    RunCodec,
)
from functions.adapters.secrets import MemorySecrets
from functions.engine.ports import Clock
from functions.runtime.settings import Settings
from functions.runtime.wiring import Services
from tests.support.clock import SeededIds


def memory_services(clock: Clock, settings: Settings | None = None) -> Services:
    """Empty services; every record makes the round trip it makes in the real table."""
    settings = settings or Settings()
    queue, blobs = MemoryQueue(clock), MemoryBlobs()
    return Services(
        settings=settings,
        runs=MemoryRunStore(RunCodec(encode=to_item, decode=from_item)),
        queue=queue,
        places=MemoryPlaces({name: c.max_queue_depth for name, c in settings.classes.items()}),
        blobs=blobs,
        catalog=MemoryCatalog(),
        tokens=MemoryTokens(),
        marks=MemoryMarks(),
        secrets=MemorySecrets(),
        map_records=MemoryMapRecords(),
        fan_out=MemoryFanOut(blobs, queue),
        clock=clock,
        ids=SeededIds(),
    )
