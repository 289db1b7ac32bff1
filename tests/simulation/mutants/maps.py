"""Maps elsewhere (R9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fanfold.adapters.aws import map_records
from fanfold.adapters.memory import MemoryFanOut, MemoryMapRecords
from fanfold.engine.record.run import Run
from fanfold.service.worker import map_batches


@contextmanager
def batches_are_recorded_over() -> Iterator[None]:
    """A batch that comes twice replaces its record (R9)."""

    async def put(self: Any, key: Any, record: Any, *, expires_at: Any) -> None:
        item = map_records.to_item(key, record, expires_at=expires_at)
        self._partitions.setdefault(key, {})[item["sk"]["S"]] = item

    with patch.object(MemoryMapRecords, "put", put):
        yield


@contextmanager
def a_map_is_looked_at_once() -> Iterator[None]:
    """An open map is over when it is looked at, whether it goes on or not (R9)."""

    start = MemoryFanOut.start

    async def begun(self: Any, execution: Any) -> bool:
        there = execution.name in self.executions
        return await start(self, execution) and not there

    async def gone(self: Any, execution: Any) -> bool:
        return False

    with patch.object(MemoryFanOut, "going", gone), patch.object(MemoryFanOut, "start", begun):
        yield


@contextmanager
def void_batches_are_worked_on() -> Iterator[None]:
    """A batch of a map that a cancellation or a newer try made void begins its items, and records them (R9)."""

    def waits(run: Run, order: Any) -> bool:
        step = run.steps.get(order.step)
        return run.submission == order.submission and step is not None and step.map is not None

    with patch.object(map_batches, "_waits", waits):
        yield
