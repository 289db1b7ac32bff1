"""A local stack of its own for the faults: its emulator keeps its state, its leases and repairs take seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import boto3
import pytest

from fanfold.local import deploy
from fanfold.local.cdk_app import Options
from tests.integration.conftest import free_port
from tests.support.load import POISONED, WORKFLOWS
from tests.support.site import Site

LEASE_SECONDS = 3.5
"""A crash costs 5 s with it (a message's visibility, in whole seconds); a holder may stand still for nearly 2 s."""

MOST_TIMES = 4
"""How much longer a lease may be on a machine that is busy with other things: there a write can take seconds."""

SETTINGS = {
    "clock_skew_seconds": 0.5,
    "suspend_after_seconds": 0.5,
    # Slot repair in seconds instead of hours (R6).
    "slot_hour_seconds": 2,
    "slot_return_seconds": 2,
    "slot_void_seconds": 15,
    "repair_after_seconds": 20,
    "repair_again_seconds": 4,
}


def lease_seconds() -> float:
    """A lease that a worker on this machine can keep: longer where more than two processes a processor want to run."""
    wanting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return LEASE_SECONDS * min(MOST_TIMES, max(1.0, wanting / 2))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, session: boto3.Session) -> Iterator[Site]:
    """The stack, deployed with Lambda workers; it is stopped when the session ends."""
    state = tmp_path_factory.mktemp("faults") / ".fanfold"
    environ = {**os.environ, "PERSIST_STATE": "1", "S3_PERSIST": "1", **POISONED}
    options = Options(port=free_port(), settings={**SETTINGS, "lease_seconds": lease_seconds()})
    stack = deploy.up(options, state=state, environ=environ, report=print)
    try:
        with closing(Site(stack, session, environ)) as site:
            for document in WORKFLOWS:
                site.client.apply(document)
            yield site
    finally:
        deploy.down(state=state)
