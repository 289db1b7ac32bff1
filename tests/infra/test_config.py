"""Configuration refuses, by name and before anything is deployed, what AWS or a promise of ours would not stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from functions.runtime.settings import Settings
from infra.classes import MAPPING_CONCURRENCY, ClassConfig
from infra.config import Config


def configured(context: Mapping[str, Any]) -> Config:
    get: Callable[[str], Any] = context.get
    return Config.from_context(get)


def shipped(config: Config) -> Settings:
    return config.settings(table="t", bucket="b", queues={name: {} for name in config.classes})


def test_without_context_the_shipped_settings_are_deployed() -> None:
    assert shipped(configured({})) == Settings(table="t", bucket="b")


def test_an_emulator_has_short_leases_and_chaos_tasks() -> None:
    settings = shipped(configured({"local": "true"}))

    assert (settings.lease_seconds, settings.clock_skew_seconds, settings.chaos) == (5, 1, True)


def test_a_real_account_has_no_chaos_tasks() -> None:
    assert not shipped(configured({"stage": "staging"})).chaos
    with pytest.raises(ValueError, match="chaos"):
        configured({"stage": "prod", "settings": '{"chaos": true}'})


def test_settings_are_overridden_by_context() -> None:
    settings = shipped(configured({"settings": '{"lease_seconds": 30, "max_queue_depth": 12}', "ledger": "/tmp/l"}))

    assert settings.lease_seconds == 30
    assert settings.ledger == "/tmp/l"
    assert settings.classes["model"].max_queue_depth == 12


def test_another_class_with_three_lanes_is_a_line_of_configuration() -> None:
    lanes = {"high": 20, "normal": 10, "low": 2}
    config = configured({"classes": {"model": {}, "harness": {"lanes": lanes, "resume": 32, "timeout_seconds": 600}}})

    assert shipped(config).classes["harness"].lanes == ("high", "normal", "low")
    assert shipped(config).classes["harness"].max_step_seconds == 540


@pytest.mark.parametrize(
    ("context", "names"),
    [
        ({"settings": "{"}, "settings: no JSON"),
        ({"settings": "[]"}, "settings: must be a JSON object"),
        ({"settings": '{"leese_seconds": 3}'}, "leese_seconds"),
        ({"settings": '{"table": "mine"}'}, "table"),
        ({"settings": '{"retention_days": 1}'}, "retention_days"),
        ({"settings": '{"lease_seconds": 8}'}, "lease_seconds"),
        ({"classes": '{"model": {"memory": 3}}'}, "classes: model: .*memory"),
        ({"classes": '{"model": {"timeout_seconds": 901}}'}, "classes: model: timeout_seconds"),
        ({"local": "yes"}, "local: 'yes'"),
        ({"api": "graphql"}, "api: 'graphql'"),
        ({"requests_per_second": "many"}, "requests_per_second"),
        ({"architecture": "sparc"}, "architecture"),
    ],
)
def test_a_wrong_context_is_refused_and_named(context: Mapping[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        configured(context)


def test_resumed_runs_get_at_least_half_of_a_class() -> None:
    assert ClassConfig(lanes={"high": 20, "normal": 10}, resume=30).concurrency == 60
    with pytest.raises(ValueError, match="at least half"):
        ClassConfig(lanes={"high": 20, "normal": 10}, resume=29)


@pytest.mark.parametrize("most", [MAPPING_CONCURRENCY.start - 1, MAPPING_CONCURRENCY.stop])
def test_a_concurrency_that_no_mapping_takes_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match="MaximumConcurrency"):
        ClassConfig(lanes={"normal": most}, resume=1_000)


def test_reserved_concurrency_below_the_mappings_is_refused() -> None:
    assert ClassConfig(reserved_concurrency=100).reserved_concurrency == 100
    with pytest.raises(ValueError, match="reserved_concurrency"):
        ClassConfig(reserved_concurrency=99)


@pytest.mark.parametrize("lane", ["resume", "dead"])
def test_a_lane_cannot_take_the_name_of_another_queue(lane: str) -> None:
    with pytest.raises(ValueError, match="lanes"):
        ClassConfig(lanes={lane: 2})
