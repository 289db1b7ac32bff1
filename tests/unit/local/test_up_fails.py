"""`fanfold up` that fails after it has deployed: nothing half made stays, or it is said how to go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fanfold.local import deploy, emf_forwarder, emulator, local_stack, toolchain
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import LocalError, LocalStack

PORT = 4599
STACK = LocalStack(
    api_url="http://127.0.0.1:1/api", token="ff_local", endpoint=f"http://127.0.0.1:{PORT}", region="us-east-1",
    table="t", bucket="b", stack="fanfold-local", ledger="/l",
)  # fmt: skip


class Machine:
    """What `up` starts and stops, none of it for real. `fails` names the stage that raises `error`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = ""
        self.error: Exception = LocalError("It does not work.")
        self.stopped: list[int] = []
        self.bridges_stopped: list[int] = []

        def stage(name: str, gives: Any) -> Callable[..., Any]:
            def play(*arguments: Any, **given: Any) -> Any:
                if self.fails == name:
                    raise self.error
                return gives

            return play

        for where, name, gives in [
            (toolchain, "check_node", None),
            (toolchain, "install_cdk", False),
            (emulator, "check_version", None),
            (emulator, "check_port", None),
            (emulator, "answers", True),
            (emulator, "start", 77),
            (deploy, "deployed", replace(STACK, token="")),
            (deploy, "_complete", None),
            (deploy, "_with_token", STACK),
            (deploy, "_apply", ["tiny"]),
            (emf_forwarder, "start", 78),
        ]:
            monkeypatch.setattr(where, name, stage(f"{where.__name__}.{name}", gives))
        monkeypatch.setattr(emulator, "stop", lambda pid, port, state: self.stopped.append(pid))
        monkeypatch.setattr(emf_forwarder, "stop", lambda pid, state: self.bridges_stopped.append(pid))

    def up(self, state: Path, **options: Any) -> LocalStack:
        return deploy.up(Options(**options), state=state, environ={}, report=lambda line: None)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


LATE = [
    "fanfold.local.deploy._complete",
    "fanfold.local.deploy._with_token",
    "fanfold.local.deploy._apply",
    "fanfold.local.emf_forwarder.start",
]


@pytest.mark.parametrize("stage", ["fanfold.local.deploy.deployed", *LATE])
def test_in_an_emulator_of_its_own_nothing_stays(machine: Machine, tmp_path: Path, stage: str) -> None:
    machine.fails = stage
    with pytest.raises(LocalError, match=r"^It does not work\.$"):
        machine.up(tmp_path, port=PORT)
    assert machine.stopped == [77]
    assert local_stack.read(tmp_path) is None


@pytest.mark.parametrize("stage", LATE)
def test_in_an_emulator_that_was_there_it_is_said_how_to_go_on(machine: Machine, tmp_path: Path, stage: str) -> None:
    machine.fails = stage
    with pytest.raises(LocalError, match=r"^It does not work\. What was deployed stays .*`fanfold up` with the same"):
        machine.up(tmp_path, endpoint=STACK.endpoint)
    assert machine.stopped == []
    machine.fails = ""
    assert machine.up(tmp_path, endpoint=STACK.endpoint).token == "ff_local"


def test_a_failure_before_anything_was_deployed_is_told_as_it_is(machine: Machine, tmp_path: Path) -> None:
    machine.fails = "fanfold.local.deploy.deployed"
    with pytest.raises(LocalError, match=r"^It does not work\.$"):
        machine.up(tmp_path, endpoint=STACK.endpoint)


def test_what_an_emulator_does_not_let_be_set_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(stack: LocalStack, *, now: object) -> None:
        raise ClientError({"Error": {"Code": "NotImplemented", "Message": "no"}}, "UpdateTimeToLive")

    monkeypatch.setattr("fanfold.doctor.emulated.complete", complete)
    with pytest.raises(LocalError, match=r"could not be completed: .*UpdateTimeToLive"):
        deploy._complete(STACK)
