"""Every function of this release starts in the environment of the next one, as after a rollback."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanfold.service.addresses import Addresses
from fanfold.service.settings import ClassSettings, Settings

BUILDERS = {
    "api": "_app",
    "watch": "_app",
    "authorizer": "_authorizer",
    "worker": "_invocations",
    "fanout": "_invocations",
    "deadletter": "_deadletter",
    "sweeper": "_sweeper",
}
ADDRESSES = Addresses(
    queues_at="https://sqs.eu-west-1.amazonaws.com/123456789012/",
    machines_at="arn:aws:states:eu-west-1:123456789012:stateMachine:",
    queues={
        "model": {"urgent": "a", "high": "b", "normal": "c", "low": "d", "resume": "e", "dead": "f"},
        "later": {"only": "g", "resume": "h", "dead": "i"},
    },
    machines={"model": "maps"},
)


def newer() -> dict[str, str]:
    """What the next release may say: a setting more, a class more with a setting more, a lane more in a known one."""
    settings = Settings(table="t", bucket="b", classes={"model": ClassSettings(), "later": ClassSettings()})
    told = settings.to_env(brief=True, addresses=ADDRESSES)
    classes = {"later": {"sandbox": "microvm", "max_step_seconds": 60.0}, "model": {"share": {"acme": 0.5}}}
    return told | {"FANFOLD_CLASSES": json.dumps(classes), "FANFOLD_TENANT_SHARES": "1"}


def test_every_entry_point_is_in_the_list() -> None:
    package = importlib.import_module("functions").__path__[0]
    modules = {path.stem for path in Path(package).glob("*.py")} - {"__init__"}
    assert modules == set(BUILDERS)


@pytest.mark.parametrize("module", BUILDERS)
def test_it_starts_and_knows_what_it_can_of_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in newer().items():
        monkeypatch.setenv(name, value)
    build: Callable[[], Any] = getattr(
        importlib.import_module(f"fanfold.service.functions.{module}"), BUILDERS[module]
    ).__wrapped__
    built = build()
    assert built is not None
    if hasattr(built, "close"):
        built.close()
    read = Settings.from_env(newer())
    assert read.classes["model"].lanes == ("urgent", "high", "normal", "low")
    assert read.classes["later"].queues["only"].endswith("/g")
    assert read.classes["later"].max_step_seconds == 60
