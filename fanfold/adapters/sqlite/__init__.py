"""Every port in one SQLite file: what `fanfold dev` and `fanfold serve` run on.

The table is a table of that file and the adapters above it are DynamoDB's own, so a record, a condition and a limit
mean the same in both. Queues, payloads and map executions have adapters of their own.
"""

from fanfold.adapters.sqlite.blobs import SqliteBlobs
from fanfold.adapters.sqlite.database import Database
from fanfold.adapters.sqlite.fanout import SqliteFanOut
from fanfold.adapters.sqlite.queue import SqliteQueue
from fanfold.adapters.sqlite.table import SqliteTable

__all__ = ["Database", "SqliteBlobs", "SqliteFanOut", "SqliteQueue", "SqliteTable"]
