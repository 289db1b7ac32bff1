"""A deployment's services in memory, for as long as one run is played."""

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
from functions.engine.ports import Clock, Ids
from functions.runtime.settings import Settings
from functions.runtime.wiring import Services


def memory_services(settings: Settings, clock: Clock, ids: Ids) -> tuple[Services, MemoryFanOut]:
    """Empty services, and the fan-out among them, which still lacks its function.

    Every record makes the round trip it makes in the real table.
    """
    queue, blobs = MemoryQueue(clock), MemoryBlobs()
    fan_out = MemoryFanOut(blobs, queue)
    wired = Services(
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
        fan_out=fan_out,
        clock=clock,
        ids=ids,
    )
    return wired, fan_out
