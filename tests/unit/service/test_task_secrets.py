"""Secrets that a process looks up as it starts: once, and one that can't be had costs only itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fanfold.service import task_secrets
from fanfold.service.settings import Settings
from fanfold.service.task_secrets import look_up


class Sdk:
    """What answers in the place of AWS, and counts what it was asked."""

    def __init__(self, service: str, asked: Counter[str]) -> None:
        self._service = service
        self._asked = asked

    def get_secret_value(self, **given: str) -> Any:
        self._asked[given["SecretId"]] += 1
        if "denied" in given["SecretId"]:
            raise PermissionError("no rights")
        return {"SecretString": f"value of {given['SecretId']}"}

    def get_parameter(self, **given: Any) -> Any:
        self._asked[given["Name"]] += 1
        assert given["WithDecryption"]
        return {"Parameter": {"Value": f"value of {given['Name']}"}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    monkeypatch.setattr(task_secrets, "_found", {})
    counted: Counter[str] = Counter()
    monkeypatch.setattr(task_secrets, "_sdk", lambda: lambda service: Sdk(service, counted))
    return counted


def test_secrets_and_parameters_come_into_their_variables_and_are_asked_for_once(asked: Counter[str]) -> None:
    environ = {"FANFOLD_SECRET_KEY": "secret:arn:aws:1", "FANFOLD_SECRET_OTHER": "parameter:/mine", "PLAIN": "x"}
    for _ in range(3):
        look_up(environ)
    assert (environ["KEY"], environ["OTHER"], environ["PLAIN"]) == ("value of arn:aws:1", "value of /mine", "x")
    assert asked == {"arn:aws:1": 1, "/mine": 1}


def test_one_that_can_not_be_had_costs_no_other_and_is_told_without_any_value(
    asked: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"FANFOLD_SECRET_A": "secret:denied", "FANFOLD_SECRET_B": "nonsense", "FANFOLD_SECRET_C": "secret:c"}
    look_up(environ)
    assert environ["C"] == "value of c"
    assert {"A", "B"}.isdisjoint(environ)
    said = capsys.readouterr().out
    assert said.count("a secret could not be read") == 2
    assert "value of" not in said
    look_up(environ)
    assert asked["denied"] == 2, "it may be there later"


def test_where_there_are_none_nobody_is_asked(asked: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_secrets, "_sdk", lambda: pytest.fail("the SDK costs time"))
    look_up({"PLAIN": "x"})
    assert not asked


def test_their_variables_are_no_unknown_settings(capsys: pytest.CaptureFixture[str]) -> None:
    Settings.from_env({"FANFOLD_SECRET_KEY": "secret:x"})
    assert "ignored" not in capsys.readouterr().out
