"""The backends as a fixture: every test of the suite runs once on each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from fanfold.adapters.sqlite import Database
from fanfold.service.aws_clients import Aws
from tests.contract.backends import MAX_RECEIVES, WITH_RECORDS, AwsBackend, Backend, MemoryBackend, SqliteBackend
from tests.support.aws import create_stack
from tests.support.localstack import SERVICES, WANTED

BACKENDS = ["memory", *WITH_RECORDS]
if WANTED:
    BACKENDS.append(pytest.param("localstack", marks=pytest.mark.localstack))

LOCALSTACK_GRAIN = 1.0
"""Its queues look once a second for what is visible again, and for delays that are over."""


class ReusedClients:
    """A session for `create_stack` that makes each client once: they cost more than what they are used for."""

    def __init__(self, session: boto3.Session) -> None:
        self._session = session
        self._clients: dict[tuple[str, str | None], Any] = {}

    def client(self, service: Any, endpoint_url: str | None = None) -> Any:
        key = (service, endpoint_url)
        if key not in self._clients:
            self._clients[key] = self._session.client(service, endpoint_url=endpoint_url)
        return self._clients[key]


@pytest.fixture(scope="session")
def builder(session: boto3.Session) -> ReusedClients:
    return ReusedClients(session)


@pytest.fixture(scope="session")
def moto_aws(session: boto3.Session) -> Iterator[Aws]:
    """Clients for moto, which answers them inside `mock_aws` alone.

    One thread: moto checks a condition and writes without a lock between, which no DynamoDB does.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        aws = Aws(session, threads=1)
        yield aws
        aws.close()


@pytest.fixture(scope="session")
def emulator_aws(session: boto3.Session, emulator_url: str) -> Iterator[Aws]:
    aws = Aws(session, endpoint_url=emulator_url, threads=8)
    yield aws
    aws.close()


class Divided:
    """A session for LocalStack: what it has there, the rest (DynamoDB) on the embedded emulator."""

    def __init__(self, session: Any, there: str, rest: str) -> None:
        self._session = session
        self._there = there
        self._rest = rest

    def client(self, service: Any, endpoint_url: str | None = None, **options: Any) -> Any:
        where = self._there if service in SERVICES else self._rest
        return self._session.client(service, endpoint_url=where, **options)


@pytest.fixture(scope="session")
def localstack_aws(session: boto3.Session, localstack_url: str, emulator_url: str) -> Iterator[Aws]:
    aws = Aws(Divided(session, localstack_url, emulator_url), endpoint_url=emulator_url, threads=8)
    yield aws
    aws.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, builder: ReusedClients) -> Iterator[Backend]:
    name = f"contract-{uuid.uuid4().hex[:12]}"
    match request.param:
        case "memory" | "memory-packed":
            yield MemoryBackend(packed=request.param == "memory-packed")
        case "sqlite":
            database = Database(request.getfixturevalue("tmp_path") / "fanfold.db")
            yield SqliteBackend(database)
            database.close()
        case "moto":
            aws: Aws = request.getfixturevalue("moto_aws")
            with mock_aws():
                stack = create_stack(builder, name=name, max_receives=MAX_RECEIVES)
                yield AwsBackend(aws, stack, answers_urls=False, shards=3)
        case "localstack":
            aws = request.getfixturevalue("localstack_aws")
            urls = (request.getfixturevalue(name) for name in ("localstack_url", "emulator_url"))
            stack = create_stack(Divided(builder, *urls), name=name, max_receives=MAX_RECEIVES)
            yield AwsBackend(aws, stack, answers_urls=True, shards=1, grain=LOCALSTACK_GRAIN)
        case _:
            aws = request.getfixturevalue("emulator_aws")
            stack = create_stack(builder, request.getfixturevalue("emulator_url"), name=name, max_receives=MAX_RECEIVES)
            yield AwsBackend(aws, stack, answers_urls=True, shards=1)
