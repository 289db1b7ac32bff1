"""Every port in memory: what the tests and the simulation run on, held to the contract suite like the AWS adapters."""

from fanfold.adapters.memory.blobs import MemoryBlobs
from fanfold.adapters.memory.catalog import MemoryCatalog
from fanfold.adapters.memory.fanout import MemoryFanOut
from fanfold.adapters.memory.map_records import MemoryMapRecords
from fanfold.adapters.memory.queue import MemoryQueue
from fanfold.adapters.memory.read_meter import ReadMeter
from fanfold.adapters.memory.run_store import MemoryRunStore, RunCodec
from fanfold.adapters.memory.seats import MemorySeats
from fanfold.adapters.memory.secrets import MemorySecrets
from fanfold.adapters.memory.slots import MemorySlots
from fanfold.adapters.memory.sweeper_state import MemorySweeperState
from fanfold.adapters.memory.tokens import MemoryTokens

__all__ = [
    "MemoryBlobs",
    "MemoryCatalog",
    "MemoryFanOut",
    "MemoryMapRecords",
    "MemoryQueue",
    "MemoryRunStore",
    "MemorySeats",
    "MemorySecrets",
    "MemorySlots",
    "MemorySweeperState",
    "MemoryTokens",
    "ReadMeter",
    "RunCodec",
]
