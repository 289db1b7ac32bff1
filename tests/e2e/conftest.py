"""A local stack of its own for the faults: its emulator keeps its state, its leases and repairs take seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import boto3
import pytest

from fanfold import deploy
from fanfold.deploy import Options
from tests.integration.conftest import free_port
from tests.support.load import WORKFLOWS
from tests.support.site import Site

SETTINGS = {
    # A crash costs 5 s (a message's visibility, in whole seconds); a holder may stand still for nearly 2 s.
    "lease_seconds": 3.5,
    "clock_skew_seconds": 0.5,
    "suspend_after_seconds": 0.5,
    # Place repair in seconds instead of hours (R6).
    "place_hour_seconds": 2,
    "place_return_seconds": 2,
    "place_void_seconds": 15,
    "repair_after_seconds": 20,
    "repair_again_seconds": 4,
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, session: boto3.Session) -> Iterator[Site]:
    """The stack, deployed with Lambda workers; it is stopped when the session ends."""
    state = tmp_path_factory.mktemp("faults") / ".fanfold"
    environ = {**os.environ, "PERSIST_STATE": "1", "S3_PERSIST": "1"}
    stack = deploy.up(Options(port=free_port(), settings=SETTINGS), state=state, environ=environ, report=print)
    try:
        with closing(Site(stack, session, environ)) as site:
            for document in WORKFLOWS:
                site.client.apply(document)
            yield site
    finally:
        deploy.down(state=state)
