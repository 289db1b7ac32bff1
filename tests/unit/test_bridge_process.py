"""The bridge's process is stopped with the stack, and by nothing that is not its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fanfold import bridge, deploy, local
from tests.unit.test_local import a_stack


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A stack that is nowhere, with a bridge."""
    state = tmp_path / ".fanfold"
    stack = replace(a_stack(), log_groups={"api": "/somewhere"})
    local.write(state, stack)
    pid = bridge.start(state, os.environ)
    local.write(state, replace(stack, bridge_pid=pid))
    yield state
    bridge.stop(pid, state)


def pid_of(state: Path) -> int:
    stack = local.read(state)
    assert stack is not None
    assert stack.bridge_pid is not None
    return stack.bridge_pid


def test_down_stops_it_and_it_has_said_what_it_could_not_reach(state: Path) -> None:
    pid = pid_of(state)
    assert bridge.is_ours(pid, state)
    until = time.monotonic() + 30
    while not (state / "bridge.log").read_text() and time.monotonic() < until:
        time.sleep(0.1)
    assert "not this time" in (state / "bridge.log").read_text()
    assert deploy.down(state=state)
    assert not bridge.is_ours(pid, state)


def test_it_ends_by_itself_when_its_stack_is_forgotten(state: Path) -> None:
    pid = pid_of(state)
    local.remove(state)
    until = time.monotonic() + 30
    while bridge.is_ours(pid, state) and time.monotonic() < until:
        time.sleep(0.1)
        os.waitpid(pid, os.WNOHANG)
    assert not bridge.is_ours(pid, state)


def test_somebody_elses_process_is_never_taken_for_it(tmp_path: Path) -> None:
    assert not bridge.is_ours(os.getpid(), tmp_path)
    assert not bridge.stop(os.getpid(), tmp_path)
