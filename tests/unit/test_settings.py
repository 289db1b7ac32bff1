"""Settings travel in a process's environment, whole or in brief, and come out as they went in."""

from __future__ import annotations

import pytest

from functions.runtime.settings import ClassSettings, Settings

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
