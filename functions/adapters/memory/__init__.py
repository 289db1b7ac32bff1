"""Every port in memory: what the tests and the simulation run on, held to the contract suite like the AWS adapters."""

from functions.adapters.memory.blobs import MemoryBlobs
from functions.adapters.memory.catalog import MemoryCatalog
from functions.adapters.memory.fanout import MemoryFanOut
from functions.adapters.memory.places import MemoryPlaces
from functions.adapters.memory.queue import MemoryQueue
from functions.adapters.memory.reads import ReadMeter
from functions.adapters.memory.runs import MemoryRunStore, RunCodec
from functions.adapters.memory.tokens import MemoryTokens

__all__ = [
    "MemoryBlobs",
    "MemoryCatalog",
    "MemoryFanOut",
    "MemoryPlaces",
    "MemoryQueue",
    "MemoryRunStore",
    "MemoryTokens",
    "ReadMeter",
    "RunCodec",
]
