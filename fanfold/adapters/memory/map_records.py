"""Records of maps in memory."""

from __future__ import annotations

from datetime import datetime

from fanfold.adapters.aws.map_records import from_item, sort_key, to_item
from fanfold.adapters.aws.run_items import SK, Item
from fanfold.engine.language.maps import MapRecord
from fanfold.engine.ports import MapKey


class MemoryMapRecords:
    """A `MapRecords` in memory; every record makes the round trip it makes in the real table."""

    def __init__(self) -> None:
        self._partitions: dict[MapKey, dict[str, Item]] = {}

    async def put(self, key: MapKey, record: MapRecord, *, expires_at: datetime) -> None:
        """See `MapRecords.put`."""
        item = to_item(key, record, expires_at=expires_at)
        self._partitions.setdefault(key, {}).setdefault(item[SK]["S"], item)

    async def has(self, key: MapKey, *, try_number: int, first: int) -> bool:
        """See `MapRecords.has`."""
        return sort_key(try_number, first) in self._partitions.get(key, {})

    async def read(self, key: MapKey) -> list[MapRecord]:
        """See `MapRecords.read`."""
        return [from_item(item) for _, item in sorted(self._partitions.get(key, {}).items())]
