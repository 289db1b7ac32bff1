"""The least and the most of each number that is configured, so that a wrong one stops the synth and not the service."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fanfold.engine.record.run import HOUR_SECONDS
from fanfold.engine.rules.engine_limits import MAX_LEASE, MAX_LIFE

MIN_RETENTION_DAYS = 15
"""An ended run's record lives at least this long: envelopes live up to 14 days (SQS's longest retention; R2)."""

MAX_RECORD_BYTES = 300_000
"""The results of a batch of a map's items, those in S3 aside: DynamoDB's item limit (400 KB) with room for errors."""

_YEAR_SECONDS = 366 * 86_400

BOUNDS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "lease_seconds": (0, MAX_LEASE.total_seconds()),
        "clock_skew_seconds": (0, MAX_LEASE.total_seconds()),
        "hand_over_margin_seconds": (0, 900),
        "suspend_after_seconds": (0, 900),
        "drain_seconds": (0, 7 * 86_400),
        "missing_task_seconds": (0, _YEAR_SECONDS),
        "max_crashes": (1, 1_000),
        "concurrency": (1, 10_000),
        "aws_threads": (1, 1_000),
        "inline_bytes": (0, MAX_RECORD_BYTES),
        "max_body_bytes": (1_000, 10_000_000),
        "max_output_bytes": (1_000, 100_000_000),
        "retention_days": (MIN_RETENTION_DAYS, 3_660),
        "max_life_days": (1, MAX_LIFE.days),
        "index_shards": (1, 1_000),
        "due_shards": (1, 1_000),
        "slot_shards": (1, 1_000),
        "max_map_items": (1, 1_000_000),
        "inline_map_items": (0, 10_000),
        "map_batch": (1, 10_000),
        "max_map_bytes": (1_000, 1_000_000_000),
        "max_waiters": (0, 10_000),
        "max_watchers": (0, 1_000_000),
        "submits_per_minute": (0, 1_000_000_000),
        "sweep_batch": (1, 1_000_000),
        "sweep_wakes": (1, 1_000_000),
        "slot_hour_seconds": (1, HOUR_SECONDS),
        "slot_return_seconds": (0, _YEAR_SECONDS),
        "slot_void_seconds": (0, _YEAR_SECONDS),
        "repair_after_seconds": (0, _YEAR_SECONDS),
        "repair_again_seconds": (0, _YEAR_SECONDS),
        "repair_batch": (1, 1_000_000),
        "mock_latency_ms": (0, 900_000),
        "debug_sample": (0, 1),
    }
)
"""The least and the most that each number may be. Beyond that lies what no process can start or go on with, or what
breaks a promise: a clock's difference below zero would let two workers own a run."""

LOG_FORMATS = ("json", "text")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
