"""`fanfold queues`: once, and again and again, for people, pipes and programs."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from fanfold.client.results import Queue
from fanfold.commands import queues
from fanfold.commands.command_line import main
from fanfold.commands.output import PIPE_WIDTH

FULL: Queue = {
    "class": "model",
    "lanes": {"high": {"queued": 1}, "normal": {"queued": 20}, "low": {"queued": 300}},
    "queued": 321,
    "max_queue_depth": 10_000,
    "oldest_age_seconds": 61.4,
    "drain_per_second": 2.5,
}
IDLE: Queue = {
    "class": "harness",
    "lanes": {"first": {"queued": 0}},
    "queued": 0,
    "max_queue_depth": 0,
    "oldest_age_seconds": None,
    "drain_per_second": None,
}


class Api:
    """A client that tells one number more at each look."""

    def __init__(self) -> None:
        self.asked = 0

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to close."""

    def queues(self) -> list[Queue]:
        self.asked += 1
        return [{**FULL, "queued": FULL["queued"] + self.asked}, IDLE]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    api = Api()
    monkeypatch.setattr("fanfold.commands.output.client", lambda **given: api)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return api


def test_a_line_says_all_by_itself() -> None:
    at = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
    assert list(queues.lines([FULL, IDLE], at)) == [
        "12:00:05  model           321 of 10000    high 1, normal 20, low 300, oldest 61 s, drains 2.5/s",
        "12:00:05  harness           0 of none     first 0",
    ]


def test_a_table_has_a_row_for_each_class() -> None:
    console = Console(file=io.StringIO(), width=PIPE_WIDTH)
    console.print(queues.table([FULL, IDLE]))
    printed: Any = console.file
    told = printed.getvalue().splitlines()
    assert told[0].split() == ["class", "lanes", "queued", "bound", "oldest", "drains"]
    assert told[1].split()[0] == "model"
    assert len(told) == 3


def test_once_is_one_look(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["queued"] == 322
    assert api.asked == 1


def test_watching_in_a_pipe_prints_a_line_for_each_class_and_look(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues", "--watch", "--looks", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines if "model" in line] == ["322", "323", "324"]
    assert len(lines) == 6


def test_watching_for_programs_is_a_json_line_for_each_look(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues", "--watch", "--looks", "2", "--json"]) == 0
    assert [json.loads(line)[0]["queued"] for line in capsys.readouterr().out.splitlines()] == [322, 323]


@pytest.mark.parametrize("arguments", [["--looks", "2"], ["--watch", "--looks", "0"], ["--watch", "--every", "0"]])
def test_a_look_that_makes_no_sense_is_a_usage_error(api: Api, arguments: list[str]) -> None:
    assert main(["queues", *arguments]) == 2
    assert api.asked == 0
