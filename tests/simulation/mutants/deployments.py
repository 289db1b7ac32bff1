"""What old and new processes owe each other while settings change (R6, R11, R12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from unittest.mock import patch

from fanfold.adapters.memory import slots as memory_slots
from fanfold.engine.admission.estimates import shares
from fanfold.engine.record.run import Run
from fanfold.engine.rules import delivery, lease
from fanfold.engine.rules.engine_limits import EngineLimits
from tests.simulation.stores import Slots


@contextmanager
def leases_are_as_long_as_ones_own() -> Iterator[None]:
    """A lease that ends further ahead than two of the judge's own counts as over (R11)."""
    held = lease.held

    def judged(run: Run, now: datetime, limits: EngineLimits) -> bool:
        return held(run, now, limits) and run.lease_until is not None and run.lease_until <= now + 2 * limits.lease

    with patch.object(lease, "held", judged), patch.object(delivery, "held", judged):
        yield


@contextmanager
def a_shard_admits_before_it_is_made() -> Iterator[None]:
    """Who has more shards in its settings fills them up at once, whatever the others hold (R6)."""
    reserve = Slots.reserve

    async def hasty(self: Slots, class_name: str, **given: Any) -> Any:
        it = self._class(class_name)
        bounds = shares(it.limit, self._shards)[len(it.shards) :]
        it.shards += [memory_slots._Shard(limit=bound) for bound in bounds]
        return await reserve(self, class_name, **given)

    with patch.object(Slots, "reserve", hasty):
        yield
