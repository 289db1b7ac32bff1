"""The numbers that ship. A benchmark's settings, or a slip, must not become everybody's."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fanfold import project
from fanfold.cdk.classes import ClassConfig
from fanfold.cdk.fargate import Fargate
from fanfold.service.settings import ClassSettings, Settings

SETTINGS = {
    "table": "",
    "bucket": "",
    "database": "",
    "public_url": "",
    "task_modules": ("functions.tasks",),
    "classes": {"model": ClassSettings()},
    "stage": "dev",
    "service": "fanfold",
    "lease_seconds": 60,
    "clock_skew_seconds": 5,
    "hand_over_margin_seconds": 30,
    "suspend_after_seconds": 5,
    "drain_seconds": 25,
    "missing_task_seconds": 259_200,
    "max_crashes": 5,
    "concurrency": 32,
    "aws_threads": 32,
    "inline_bytes": 8_192,
    "max_body_bytes": 5_000_000,
    "max_output_bytes": 4_000_000,
    "retention_days": 30,
    "max_life_days": 365,
    "index_shards": 1,
    "due_shards": 1,
    "slot_shards": 1,
    "max_map_items": 10_000,
    "inline_map_items": 50,
    "map_batch": 25,
    "max_map_bytes": 32_000_000,
    "max_waiters": 50,
    "max_watchers": 100,
    "submits_per_minute": 6_000,
    "sweep_batch": 2_000,
    "sweep_wakes": 1_000,
    "slot_hour_seconds": 3_600,
    "slot_return_seconds": 60,
    "slot_void_seconds": 7_200,
    "repair_after_seconds": 10_800,
    "repair_again_seconds": 120,
    "repair_batch": 1_000,
    "chaos": False,
    "ledger": "",
    "mock_latency_ms": 500,
    "log_level": "INFO",
    "log_format": "json",
    "debug_sample": 0.01,
    "workflow_metrics": False,
    "lane_metrics": True,
    "fair_queues": True,
}
CLASS = {
    "lanes": ("normal",),
    "max_queue_depth": 10_000,
    "max_step_seconds": 840,
    "queues": {},
    "state_machine": "",
    "max_item_seconds": 240,
    "map_concurrency": 0,
}
DEPLOYED_CLASS = {
    "lanes": {"high": 26, "normal": 16, "low": 8},
    "resume": 50,
    "pool": "lambda",
    "max_step_seconds": 840,
    "batch_size": 10,
    "memory_mb": 1_024,
    "timeout_seconds": 900,
    "max_queue_depth": 10_000,
    "item_seconds": 240,
}
CONTAINERS = {"cpu": 1_024, "memory_mb": 2_048, "concurrency": 32, "min_tasks": 0, "max_tasks": 10}
CLASSES = {
    "model": {"concurrency": 200},
    "harness": {"concurrency": 100, "batch_size": 1, "memory_mb": 2_048},
}


def values(given: object) -> dict[str, Any]:
    return {field.name: getattr(given, field.name) for field in fields(given)}  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "ships"), [(Settings(), SETTINGS), (ClassSettings(), CLASS)])
def test_a_setting_that_nobody_sets_is_what_ships(given: object, ships: dict[str, Any]) -> None:
    assert values(given) == ships


@pytest.mark.parametrize(("given", "ships"), [(ClassConfig(), DEPLOYED_CLASS), (Fargate(), CONTAINERS)])
def test_a_class_that_says_nothing_is_deployed_as_what_ships(given: object, ships: dict[str, Any]) -> None:
    assert {name: value for name, value in values(given).items() if name in ships} == ships


def test_the_classes_that_ship_say_so_much_and_no_more() -> None:
    assert project.at(Path(__file__).parents[3]).classes == CLASSES
