"""One local stack for the whole session, as `fanfold up` makes it, in a folder and on a port of its own.

Or in the emulator that `make test-localstack ENDPOINT=…` names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fanfold import Client
from fanfold.local import deploy
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import LocalStack
from tests.support import elsewhere
from tests.support.elsewhere import API, ENDPOINT
from tests.support.emulator import free_port


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The deployed stack; it is stopped when the session ends, or deleted where the emulator is somebody else's."""
    # Not the developer's own `.fanfold`: tests and a stack that is up at the same time leave each other alone.
    state = tmp_path_factory.mktemp("project") / ".fanfold"
    if ENDPOINT:
        elsewhere.refuse_to_share(ENDPOINT)
    where = Options(endpoint=ENDPOINT, api=API) if ENDPOINT else Options(port=free_port(), api=API)
    stack = deploy.up(where, state=state, environ=os.environ, report=print)
    yield stack
    deploy.down(state=state)
    if ENDPOINT:
        elsewhere.take_away(stack)


@pytest.fixture
def own_emulator() -> None:
    """For tests that start one, or kill what it runs: not where another was named."""
    if ENDPOINT:
        pytest.skip("it is about an emulator of one's own")


@pytest.fixture
def client(stack: LocalStack) -> Iterator[Client]:
    """A client of the stack's API, patient enough for first calls on a busy machine."""
    with Client(stack.api_url, stack.token, retry_for_seconds=60) as client:
        yield client
