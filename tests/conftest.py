"""Fixtures that more than one kind of test needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from xdist.scheduler import LoadGroupScheduling

from functions.runtime.telemetry import logger
from tests.support.elsewhere import ENDPOINT, be_sure_of
from tests.support.emulator import emulator


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """One session for all: what costs in making clients is read once."""
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


@pytest.fixture(scope="session")
def emulator_url() -> Iterator[str]:
    """The embedded emulator, bare: no stack is deployed in it. Or the one that was named, whatever is in it."""
    if ENDPOINT:
        be_sure_of(ENDPOINT)
        yield ENDPOINT
        return
    with emulator() as url:
        yield url


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a test makes of this process's log (a command may silence it) ends with the test."""
    before = logger().level
    yield
    logger().setLevel(before)


GROUPS = {"tests/integration/": "stack", "tests/e2e/test_faults.py": "faults", "tests/e2e/test_kills.py": "faults"}
"""Tests that share a deployed stack stay on one worker of a parallel session: a stack is costly to make."""


def group_of(nodeid: str) -> str | None:
    """What a test shares with others: a stack, or the bare emulator."""
    found = next((name for path, name in GROUPS.items() if nodeid.startswith(path)), None)
    return found or ("emulator" if nodeid.startswith("tests/contract/") and "emulator" in nodeid else None)


class Together(LoadGroupScheduling):
    """xdist's `loadgroup`, with groups of our own: its own go by a mark that has no effect under pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or nodeid


@pytest.hookimpl(optionalhook=True)  # a session may have no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together | None:
    """Keeps together what shares something, where `--dist loadgroup` asks for it."""
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None
