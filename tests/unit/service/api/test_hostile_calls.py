"""Every call of the API under schemathesis, which makes good and bad requests of our own OpenAPI document."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS
from schemathesis.transport.wsgi import WSGI_TRANSPORT

from fanfold.service.api.openapi import document
from fanfold.service.api.routes import CALLS
from fanfold.service.version import VERSION
from tests.support.builders import a_token
from tests.support.examples import examples
from tests.support.gateway import Gateway
from tests.support.http import PAIR, TINY, Http, memory_services

SECRET = "s" * 43
TOKEN = f"ff_{'0' * 15}1_{SECRET}"

# Relative to the document it is nothing here, where the document comes from no URL.
schema = schemathesis.openapi.from_dict({**document(CALLS, version=VERSION), "servers": [{"url": "/"}]})


EXCLUDED = [
    # A cycle of needs, an unknown task, a bad expression: what no schema can say is refused all the same.
    CHECKS.get_one("positive_data_acceptance"),
    # The token is put in by this test; that none, a wrong and a foreign one are refused is tested call by call below.
    CHECKS.get_one("ignored_auth"),
    CHECKS.get_one("missing_required_header"),
]


JUDGED_APART = (
    "/v1/runs/batch",  # its parts are judged one by one, so that one that is wrong spoils no other
    "/v1/runs",  # `status=` is an empty list, not a list of a status without a name
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    services = memory_services()
    http = Http(services=services)

    async def prepare() -> None:
        digest = hashlib.sha256(SECRET.encode()).hexdigest()
        await services.tokens.put(a_token(id="0" * 15 + "1", sha256=digest))
        for workflow in (TINY, PAIR):
            await http("PUT", f"/v1/workflows/{workflow['name']}", workflow)

    asyncio.run(prepare())
    gateway = Gateway(services)
    yield gateway
    gateway.close()


@schema.parametrize()
@settings(**examples(25), suppress_health_check=list(HealthCheck))
def test_every_call_keeps_to_its_own_description(case: Any, gateway: Gateway) -> None:
    case.headers = {**(case.headers or {}), "Authorization": f"Bearer {TOKEN}"}
    judged_apart = [CHECKS.get_one("negative_data_rejection")] if case.operation.path in JUDGED_APART else []
    case.validate_response(WSGI_TRANSPORT.send(case, app=gateway), excluded_checks=EXCLUDED + judged_apart)
