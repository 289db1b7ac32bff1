"""Many records at once, where some may be of newer code: one such record must not hide the others (R12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from functions.engine.errors import NewerSchema
from functions.engine.ports import RunKey, RunStore
from functions.engine.run import Run
from functions.runtime.telemetry import Metric, count, logger


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The records that could be read, by key, and the keys of those that newer code wrote."""

    runs: Mapping[RunKey, Run]
    newer: Sequence[RunKey] = ()


async def legible(store: RunStore, keys: Sequence[RunKey], *, now: datetime) -> Heads:
    """Up to 100 records, strongly consistent, in one call.

    Newer ones are there after a deployment was rolled back. They are left alone: counted, with one log line.
    """
    if not keys:
        return Heads(runs={})
    found = await store.get_many(keys, now=now)
    newer = [key for key, one in found.items() if isinstance(one, NewerSchema)]
    if newer:
        count(Metric.UNREADABLE, len(newer))
        logger().warning("records of newer code are left alone", extra={"runs": len(newer), "run_id": newer[0].run_id})
    return Heads(runs={key: one for key, one in found.items() if isinstance(one, Run)}, newer=newer)
