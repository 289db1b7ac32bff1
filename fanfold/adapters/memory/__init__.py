"""Every port in memory: what the tests and the simulation run on, held to the contract suite like the AWS adapters."""

from fanfold.adapters.memory.blobs import MemoryBlobs
from fanfold.adapters.memory.catalog import MemoryCatalog
from fanfold.adapters.memory.fanout import MemoryFanOut
from fanfold.adapters.memory.queue import MemoryQueue
from fanfold.adapters.memory.read_meter import ReadMeter
from fanfold.adapters.memory.run_store import MemoryRunStore, RunCodec
from fanfold.adapters.memory.slots import MemorySlots
from fanfold.adapters.memory.tokens import MemoryTokens

__all__ = [
    "MemoryBlobs",
    "MemoryCatalog",
    "MemoryFanOut",
    "MemoryQueue",
    "MemoryRunStore",
    "MemorySlots",
    "MemoryTokens",
    "ReadMeter",
    "RunCodec",
]
