"""Fixtures that more than one kind of test needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from xdist.scheduler import LoadGroupScheduling

from fanfold.service.telemetry.reporting import logger
from tests.support.elsewhere import ENDPOINT, be_sure_of
from tests.support.emulator import emulator
from tests.support.localstack import Missing, find_python, install, is_right, localstack


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


@pytest.fixture(scope="session")
def localstack_url() -> Iterator[str]:
    """The real LocalStack's SQS, S3 and Step Functions; only `make test-localstack` has tests for it."""
    try:
        python = install(find_python(os.environ, Path.home(), is_right))
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
    with localstack(python) as url:
        yield url


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a test makes of this process's log (a command may silence it) ends with the test."""
    before = logger().level
    yield
    logger().setLevel(before)


GROUPS = {
    "tests/integration/": "stack",
    "tests/localstack/": "localstack",
    "tests/e2e/test_faults.py": "faults",
    "tests/e2e/test_kills.py": "faults",
}
"""Tests that share a deployed stack stay on one worker of a parallel session: a stack is costly to make."""


def group_of(nodeid: str) -> str | None:
    """What a test shares with others: a stack, the bare emulator, or LocalStack."""
    found = next((name for path, name in GROUPS.items() if nodeid.startswith(path)), None)
    if found is None and nodeid.startswith("tests/contract/"):
        found = next((name for name in ("emulator", "localstack") if name in nodeid), None)
    return found


class Together(LoadGroupScheduling):
    """xdist's `loadgroup`, with groups of our own: its own go by a mark that has no effect under pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or nodeid


@pytest.hookimpl(optionalhook=True)  # a session may have no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together | None:
    """Keeps together what shares something, where `--dist loadgroup` asks for it."""
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None
