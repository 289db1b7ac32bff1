"""The engine's terms, taken from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from fanfold.engine.record.run import Failure
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.service.settings import Settings


def engine_limits(
    settings: Settings,
    stop_before: datetime | None = None,
    *,
    missing: Mapping[str, Failure] = MappingProxyType({}),
    stopping: bool = False,
) -> EngineLimits:
    """The engine's limits as the settings say them, for a worker that ends at `stop_before` and can't call some tasks.

    `stopping`: because it was told to.
    """
    return EngineLimits(
        lease=timedelta(seconds=settings.lease_seconds),
        skew=timedelta(seconds=settings.clock_skew_seconds),
        suspend_after=timedelta(seconds=settings.suspend_after_seconds),
        max_crashes=settings.max_crashes,
        retention=timedelta(days=settings.retention_days),
        max_life=timedelta(days=settings.max_life_days),
        stop_before=stop_before,
        max_output_bytes=settings.max_output_bytes,
        # The outputs of a map's items may come together to more than one output.
        max_read_bytes=settings.max_map_bytes + 2 * settings.max_output_bytes,
        max_map_items=settings.max_map_items,
        inline_map_items=settings.inline_map_items,
        map_batch=settings.map_batch,
        fan_out={name: c.max_item_seconds for name, c in settings.classes.items() if c.state_machine},
        missing=missing,
        missing_for=timedelta(seconds=settings.missing_task_seconds),
        longest_step={name: c.max_step_seconds for name, c in settings.classes.items()},
        stopping=stopping,
    )
