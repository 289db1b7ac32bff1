"""What a profile says per run, and how a cold start is taken; never how long either took."""

from __future__ import annotations

import cProfile
import json
import pstats
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest.__main__ import app
from loadtest.coldstarts import cold_start, import_shares
from loadtest.profiling import told


def test_a_profile_is_told_per_run_and_a_built_in_functions_time_is_its_callers() -> None:
    profiler = cProfile.Profile()
    with profiler:
        for _ in range(4):
            json.dumps({"a": [1, 2, 3]}, separators=(",", ":"))
    found = told(pstats.Stats(profiler), 4)
    calls = {row.name.rpartition(" ")[2]: row.calls for row in found.functions}
    assert calls["iterencode"] == 1
    assert sum(row.microseconds for row in found.parts) == pytest.approx(found.microseconds, rel=0.05)
    assert "Python's json" in [row.name for row in found.parts]
    assert sum(row.share for row in found.functions) == pytest.approx(1)


def test_the_command_profiles_the_engine_and_keeps_the_raw_profile(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["profile", "engine", "--runs", "3", "--out", str(tmp_path / "here")])
    assert told.exit_code == 0, told.output
    assert "fanfold.engine" in told.output
    assert (tmp_path / "here" / "engine.pstats").exists()


def test_the_command_refuses_what_it_can_not_profile(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    for arguments in (
        ["profile", "database"],
        ["profile", "engine", "--runs", "0"],
        ["profile", "api", "--out", str(taken)],
    ):
        assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with one handler, which loads a module at its first call."""
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "__init__.py").touch()
    (functions / "late.py").touch()
    (functions / "hello.py").write_text(
        "import sys\n"
        "def handler(event, context):\n"
        "    from functions import late\n"
        "    print('said')\n"
        "    assert not any('site-packages' in path for path in sys.path)\n"
        "    return {'name': event['name'], 'left': context.get_remaining_time_in_millis()}\n"
    )
    return tmp_path


def test_a_cold_start_finds_nothing_but_what_ships(package: Path) -> None:
    start = cold_start(package, "hello", {"name": "Ada"}, {})
    assert start.answer == {"name": "Ada", "left": 900_000}
    assert start.modules == 2
    assert start.elapsed_ms >= 0
    assert "functions" in import_shares(package, "hello", {"name": "Ada"}, {}, of=100)


def test_a_cold_start_that_fails_says_why(package: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'name'"):
        cold_start(package, "hello", {}, {})
