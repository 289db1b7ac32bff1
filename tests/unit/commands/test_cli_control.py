"""An operator's commands: what they ask the service, and what they print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fanfold.commands.command_line import main
from tests.unit.commands.test_cli import RUN, Service, service

__all__ = ["service"]

Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize("move", ["cancel", "pause", "resume", "redrive"])
def test_a_move_prints_the_runs_status_and_with_json_the_run(
    service: type[Service], capsys: Printed, move: str
) -> None:
    service.answers[f"POST /v1/runs/r1/{move}"] = (202, {**RUN, "status": "waiting"})
    assert main([move, "r1"]) == 0
    assert capsys.readouterr().out == "waiting\n"
    assert main([move, "r1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "r1"


def test_a_conflict_says_the_state_and_is_a_usage_error(service: type[Service], capsys: Printed) -> None:
    detail = "the run is succeeded: cancel is not possible"
    service.answers["POST /v1/runs/r1/cancel"] = (409, {"title": "Not possible in this state", "detail": detail})
    assert main(["cancel", "r1"]) == 2
    assert detail in capsys.readouterr().err


@pytest.mark.parametrize(("given", "sent"), [([], None), (['{"why": "ok"}'], {"why": "ok"}), (["3"], 3)])
def test_a_signal_sends_its_payload_and_prints_its_number(
    service: type[Service], capsys: Printed, given: list[str], sent: Any
) -> None:
    service.answers["POST /v1/runs/r1/signals/approve"] = (202, {"seq": 7})
    assert main(["signal", "r1", "approve", *given]) == 0
    assert capsys.readouterr().out == "7\n"
    assert json.loads(service.asked[-1][1]) == sent


def test_a_payload_that_is_no_json_is_a_usage_error(service: type[Service], capsys: Printed) -> None:
    assert main(["signal", "r1", "approve", "{"]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert service.asked == []


def test_a_fork_sends_only_what_is_said(service: type[Service], capsys: Printed) -> None:
    service.answers["POST /v1/runs/r1/fork"] = (202, {**RUN, "id": "r2"})
    assert main(["fork", "r1", "--from", "load"]) == 0
    assert capsys.readouterr().out == "r2\n"
    assert json.loads(service.asked[-1][1]) == {"from_step": "load"}
    assert main(["fork", "r1", "--from", "load", "--input", "null", "--version", "sha256:0"]) == 0
    assert json.loads(service.asked[-1][1]) == {"from_step": "load", "input": None, "version": "sha256:0"}
