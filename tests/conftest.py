"""Fixtures that more than one kind of test needs."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from tests.support.elsewhere import ENDPOINT
from tests.support.emulator import emulator


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """One session for all: what costs in making clients is read once."""
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


@pytest.fixture(scope="session")
def emulator_url() -> Iterator[str]:
    """The embedded emulator, bare: no stack is deployed in it. Or the one that was named, whatever is in it."""
    if ENDPOINT:
        yield ENDPOINT
        return
    with emulator() as url:
        yield url


GROUPS = {"tests/integration": "stack", "tests/e2e/test_faults.py": "faults", "tests/e2e/test_kills.py": "faults"}
"""Tests that share a deployed stack stay on one worker of a parallel session: a stack is costly to make."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps together what shares a stack, or the bare emulator."""
    for item in items:
        group = next((name for path, name in GROUPS.items() if item.nodeid.startswith(path)), None)
        if group is None and item.get_closest_marker("emulator") is not None:
            group = "emulator"
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
