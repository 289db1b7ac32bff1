"""Settings travel in a process's environment, whole or in brief, and come out as they went in."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import Field, fields, replace
from datetime import UTC, datetime

import pytest

from fanfold.service.addresses import Addresses
from fanfold.service.engine_limits import engine_limits
from fanfold.service.setting_bounds import BOUNDS
from fanfold.service.settings import ClassSettings, Settings

SETTINGS = Settings(
    table="t",
    bucket="b",
    classes={
        "model": ClassSettings(lanes=("high", "low"), queues={"high": "u1", "low": "u2", "resume": "u3", "dead": "u4"}),
        "harness": ClassSettings(max_step_seconds=86_400.0, max_queue_depth=7),
    },
    lease_seconds=30.0,
    chaos=True,
)


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("settings", [SETTINGS, Settings()])
def test_what_is_written_into_an_environment_is_read_out_of_it_again(settings: Settings, brief: bool) -> None:
    assert Settings.from_env(settings.to_env(brief=brief)) == settings


def test_in_brief_only_what_is_not_the_default_is_told() -> None:
    told = SETTINGS.to_env(brief=True)
    assert told["FANFOLD_LEASE_SECONDS"] == "30.0"
    assert "FANFOLD_CLOCK_SKEW_SECONDS" not in told
    assert "max_item_seconds" not in told["FANFOLD_CLASSES"]
    assert {"FANFOLD_TABLE", "FANFOLD_CLASSES"} <= set(Settings().to_env(brief=True))


AT = "https://sqs.eu-west-1.amazonaws.com/123456789012/"
MACHINES = "arn:aws:states:eu-west-1:123456789012:stateMachine:"
NAMED = Addresses(
    queues_at=AT,
    machines_at=MACHINES,
    queues={
        "model": {"high": "m-h", "low": "m-l", "resume": "m-r", "dead": "m-d"},
        "nightly": {"only": "n-o", "resume": "n-r", "dead": "n-d"},
    },
    machines={"model": "maps"},
)


def test_queues_and_machines_may_be_told_by_their_names() -> None:
    classes = {
        "model": ClassSettings(
            lanes=("high", "low"),
            queues={role: AT + name for role, name in NAMED.queues["model"].items()},
            state_machine=MACHINES + "maps",
        ),
        "nightly": ClassSettings(
            lanes=("only",),
            queues={role: AT + name for role, name in NAMED.queues["nightly"].items()},
            max_step_seconds=86_400.0,
        ),
    }
    settings = replace(SETTINGS, classes=classes)
    told = settings.to_env(brief=True, addresses=NAMED)
    assert Settings.from_env(told) == settings
    # A class that is as it ships is told by its names alone.
    assert json.loads(told["FANFOLD_CLASSES"]).keys() == {"nightly"}
    assert '"' not in told["FANFOLD_QUEUES"]
    # A child process is given everything in full beside what its parent was given.
    assert Settings.from_env(told | replace(settings, lease_seconds=40).to_env()).classes == classes


@pytest.mark.parametrize("text", ["model", "model=", "model=high/a/b/c", "model=high/a/b/c/d/e"])
def test_a_list_of_queues_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="FANFOLD_QUEUES"):
        Settings.from_env({"FANFOLD_QUEUES": text})


def test_what_a_newer_version_says_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    newer = SETTINGS.to_env()
    classes = json.loads(newer["FANFOLD_CLASSES"])
    classes["model"]["not_yet_thought_of"] = {"deep": [1]}
    newer |= {"FANFOLD_CLASSES": json.dumps(classes), "FANFOLD_NOT_YET_THOUGHT_OF": "much"}
    with caplog.at_level(logging.WARNING):
        assert Settings.from_env(newer) == SETTINGS
    assert sorted(record.getMessage().split(" is no ")[0] for record in caplog.records) == [
        "FANFOLD_NOT_YET_THOUGHT_OF",
        "not_yet_thought_of of class model",
    ]


def test_what_is_no_setting_of_ours_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Settings.from_env({**SETTINGS.to_env(), "FANFOLD_URL": "u", "FANFOLD_TOKEN": "t", "HOME": "h"})
    assert not caplog.records


NUMBERS = [f for f in fields(Settings) if f.type in ("int", "float")]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_each_number_has_a_least_and_a_most_and_what_is_none_is_refused(number: Field[float]) -> None:
    least, most = BOUNDS[number.name]
    assert least <= number.default <= most  # type: ignore[operator]  # each has a default
    for wrong in (least - 1, most + 1, math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=rf"^{number.name} must be from"):
            Settings(**{number.name: wrong})


def test_the_longest_times_that_may_be_set_can_be_reckoned_with() -> None:
    days = ("retention_days", "missing_task_seconds", "suspend_after_seconds", "drain_seconds", "max_life_days")
    limits = engine_limits(Settings(**{name: BOUNDS[name][1] for name in days}))
    assert datetime(2100, 1, 1, tzinfo=UTC) + limits.retention + limits.missing_for + limits.max_life


@pytest.mark.parametrize("level", ["", "LOUD", "10"])
def test_a_level_that_no_log_has_is_refused_before_anything_is_deployed(level: str) -> None:
    with pytest.raises(ValueError, match="log_level"):
        Settings(log_level=level)
