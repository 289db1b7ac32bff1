"""The bridge's process is stopped with the stack, and by nothing that is not its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fanfold.local import deploy, emf_forwarder, local_stack
from tests.unit.local.test_local import a_stack


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A stack that is nowhere, with a bridge."""
    state = tmp_path / ".fanfold"
    stack = replace(a_stack(), log_groups={"api": "/somewhere"})
    local_stack.write(state, stack)
    pid = emf_forwarder.start(state, os.environ)
    local_stack.write(state, replace(stack, bridge_pid=pid))
    yield state
    emf_forwarder.stop(pid, state)


def pid_of(state: Path) -> int:
    stack = local_stack.read(state)
    assert stack is not None
    assert stack.bridge_pid is not None
    return stack.bridge_pid


def test_down_stops_it_and_it_has_said_what_it_could_not_reach(state: Path) -> None:
    pid = pid_of(state)
    assert emf_forwarder.is_ours(pid, state)
    until = time.monotonic() + 30
    while not (state / "bridge.log").read_text() and time.monotonic() < until:
        time.sleep(0.1)
    assert "not this time" in (state / "bridge.log").read_text()
    assert deploy.down(state=state)
    assert not emf_forwarder.is_ours(pid, state)


def test_it_ends_by_itself_when_its_stack_is_forgotten(state: Path) -> None:
    pid = pid_of(state)
    local_stack.remove(state)
    until = time.monotonic() + 30
    while emf_forwarder.is_ours(pid, state) and time.monotonic() < until:
        time.sleep(0.1)
        os.waitpid(pid, os.WNOHANG)
    assert not emf_forwarder.is_ours(pid, state)


def test_somebody_elses_process_is_never_taken_for_it(tmp_path: Path) -> None:
    assert not emf_forwarder.is_ours(os.getpid(), tmp_path)
    assert not emf_forwarder.stop(os.getpid(), tmp_path)
