"""Many records at once, where this code may be unable to read some: one such record must not hide the others (R12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fanfold.engine.errors import Unreadable
from fanfold.engine.ports import RunKey, RunStore
from fanfold.engine.record.run import Run
from fanfold.service.telemetry.reporting import Metric, count, logger


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The records that could be read, by key, and why the others could not."""

    runs: Mapping[RunKey, Run]
    unreadable: Mapping[RunKey, Unreadable] = field(default_factory=dict)


async def legible(store: RunStore, keys: Sequence[RunKey], *, now: datetime) -> Heads:
    """Up to 100 records, strongly consistent, in one call.

    One that newer code wrote (after a deployment was rolled back) or that is damaged is left alone: counted, and
    named in one log line.
    """
    if not keys:
        return Heads(runs={})
    found = await store.get_many(keys, now=now)
    unreadable = {key: one for key, one in found.items() if isinstance(one, Unreadable)}
    if unreadable:
        count(Metric.UNREADABLE, len(unreadable))
        first, why = next(iter(unreadable.items()))
        facts = {"runs": len(unreadable), "run_id": first.run_id, "why": str(why)}
        logger().warning("records that can't be read are left alone", extra=facts)
    return Heads(runs={key: one for key, one in found.items() if isinstance(one, Run)}, unreadable=unreadable)
