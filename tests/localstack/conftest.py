"""What the tests need of LocalStack."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from fanfold.service.aws_clients import Aws


@pytest.fixture(scope="session")
def aws(session: boto3.Session, localstack_url: str) -> Iterator[Aws]:
    """Our own clients, all of them at LocalStack."""
    aws = Aws(session, endpoint_url=localstack_url, threads=8)
    yield aws
    aws.close()
