"""Configuration refuses, by name and before anything is deployed, what AWS or a promise of ours would not stand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fanfold.cdk.classes import ClassConfig
from fanfold.cdk.config import Config
from fanfold.service.settings import Settings


def configured(context: Mapping[str, Any]) -> Config:
    get: Callable[[str], Any] = context.get
    return Config.from_context(get)


def shipped(config: Config) -> Settings:
    return config.settings(table="t", bucket="b", queues={name: {} for name in config.classes})


def test_without_context_the_shipped_settings_are_deployed() -> None:
    config = configured({})
    facts = {"classes": shipped(config).classes, "service": config.stack_name}
    assert shipped(config) == Settings(table="t", bucket="b", **facts)


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


@pytest.mark.parametrize(
    ("context", "names"),
    [
        ({"settings": "{"}, "settings: no JSON"),
        ({"settings": "[]"}, "settings: must be a JSON object"),
        ({"settings": '{"leese_seconds": 3}'}, "leese_seconds"),
        ({"settings": '{"table": "mine"}'}, "table"),
        ({"settings": '{"retention_days": 1}'}, "retention_days"),
        ({"settings": '{"lease_seconds": "30"}'}, "settings: lease_seconds is a number, not '30'"),
        ({"settings": '{"lease_seconds": true}'}, "settings: lease_seconds is a number, not True"),
        ({"settings": '{"submits_per_minute": 1.5}'}, "settings: submits_per_minute is a whole number, not 1.5"),
        ({"settings": '{"chaos": "no"}'}, "settings: chaos is true or false, not 'no'"),
        ({"settings": '{"log_level": 5}'}, "settings: log_level is a text, not 5"),
        ({"settings": '{"log_level": "LOUD"}'}, "log_level is .LOUD."),
        ({"settings": '{"clock_skew_seconds": -1}'}, "clock_skew_seconds must be from 0 to 900"),
        ({"settings": '{"suspend_after_seconds": NaN}'}, "suspend_after_seconds"),
        ({"settings": '{"index_shards": 0}'}, "index_shards must be from 1 to 1,000"),
        ({"settings": '{"slot_shards": -1}'}, "slot_shards must be from 1 to 1,000"),
        ({"settings": '{"max_queue_depth": -3}'}, "max_queue_depth"),
        ({"settings": '{"max_life_days": 366}'}, "max_life_days must be from 1 to 365"),
        ({"settings": '{"slot_hour_seconds": 60}'}, "slot_hour_seconds"),
        ({"settings": '{"slot_return_seconds": 30}'}, "slot_return_seconds"),
        ({"settings": '{"slot_void_seconds": 60}'}, "slot_void_seconds"),
        ({"settings": '{"repair_after_seconds": 20000}'}, "repair_after_seconds"),
        ({"settings": '{"repair_again_seconds": 300}'}, "repair_again_seconds"),
        ({"settings": '{"lease_seconds": 8}'}, "lease_seconds"),
        ({"classes": '{"model": {"memory": 3}}'}, "classes: model: .*memory"),
        ({"classes": '{"model": {"timeout_seconds": 901}}'}, "classes: model: timeout_seconds"),
        ({"local": "yes"}, "local: 'yes'"),
        ({"api": "graphql"}, "api: 'graphql'"),
        ({"requests_per_second": "many"}, "requests_per_second"),
        ({"reserved": "20"}, "reserved: must be a JSON object"),
        ({"reserved": {"worker": 20}}, "reserved: unknown \\['worker'\\]; known are api"),
        ({"reserved": {"watch": 100}}, "reserved: watch has 100, and 100 calls may wait"),
        ({"reserved": {"watch": 20}, "settings": '{"max_watchers": 20}'}, "watch has 20, and 20 calls"),
        ({"reserved": {"api": 0}}, "reserved: api is at least 1"),
        ({"reserved": {"api": "20"}}, "reserved: api is a whole number"),
        ({"architecture": "sparc"}, "architecture"),
    ],
)
def test_a_wrong_context_is_refused_and_named(context: Mapping[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        configured(context)


@pytest.mark.parametrize("margin", [24, 41])
def test_a_margin_that_leaves_a_step_or_a_call_no_time_is_refused(margin: int) -> None:
    with pytest.raises(ValueError, match=f"hand_over_margin_seconds.* {margin}"):
        configured({"settings": f'{{"hand_over_margin_seconds": {margin}}}'})
    assert configured({"settings": '{"hand_over_margin_seconds": 40}'}).overrides == {"hand_over_margin_seconds": 40}


def test_a_wide_margin_goes_with_a_class_of_shorter_steps_or_of_processes() -> None:
    wide = {"settings": '{"hand_over_margin_seconds": 120}'}
    for given in ({"max_step_seconds": 760}, {"pool": "process"}):
        assert configured({**wide, "classes": json.dumps({"model": given})}).classes["model"] == ClassConfig(**given)
    with pytest.raises(ValueError, match="class model have 900 s, and steps of 761 s leave 119"):
        configured({**wide, "classes": json.dumps({"model": {"max_step_seconds": 761}})})
