"""Fixtures that more than one kind of test needs."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from tests.support.emulator import emulator


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """One session for all: what costs in making clients is read once."""
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


@pytest.fixture(scope="session")
def emulator_url() -> Iterator[str]:
    """The embedded emulator, bare: no stack is deployed in it."""
    with emulator() as url:
        yield url
