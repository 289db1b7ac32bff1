"""The embedded emulator answers programs of this machine, and no web page: over real HTTP, as a browser would ask."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping

import boto3
import pytest

from fanfold.local import emulator
from tests.integration.conftest import free_port

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("own_emulator")]

CREATE = "/2015-03-31/functions"
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
FUNCTION = json.dumps({"FunctionName": "theirs", "Runtime": "python3.11", "Handler": "a.b", "Role": "r", "Code": {}})


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    state = tmp_path_factory.mktemp("guarded")
    port = free_port()
    pid = emulator.start(port, state, os.environ)
    yield port
    emulator.stop(pid, port, state)


def asked(
    port: int, method: str, path: str, headers: Mapping[str, str | list[str]], body: str = ""
) -> http.client.HTTPResponse:
    """The answer to exactly these headers; no Host but the one given."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode())
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def assert_refused(answer: http.client.HTTPResponse) -> None:
    assert answer.status == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def local(port: int) -> str:
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", ""])
def test_a_web_page_may_neither_ask_beforehand_nor_post(port: int, origin: str) -> None:
    preflight = {"Host": local(port), "Origin": origin, "Access-Control-Request-Method": "POST"}
    assert_refused(asked(port, "OPTIONS", CREATE, preflight))
    simple = {"Host": local(port), "Origin": origin, "Content-Type": "text/plain"}
    assert_refused(asked(port, "POST", CREATE, simple, FUNCTION))
    assert_refused(asked(port, "GET", "/_localstack/health", {"Host": local(port), "Origin": origin}))


def test_nothing_that_a_page_was_refused_has_happened(port: int) -> None:
    asked(port, "POST", CREATE, {"Host": local(port), "Origin": "https://evil.example"}, FUNCTION)
    asked(port, "POST", CREATE, {"Host": "evil.example"}, FUNCTION)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", CREATE)
    assert json.loads(connection.getresponse().read())["Functions"] == []
    connection.close()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_picture_or_a_link_on_a_web_page_asks_in_vain(port: int, site: str) -> None:
    """A browser sends no Origin with these, and AWS's query protocol takes a GET for an order."""
    headers = {"Host": local(port), "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert_refused(asked(port, "GET", "/?Action=CreateQueue&QueueName=theirs", headers))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4566",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "0.0.0.0",
        "192.168.0.1:4566",
        "127.0.0.1@evil.example",
        "a.b@127.0.0.1",
        "bucket.s3.amazonaws.com",
        "0052daf0.execute-api.evil.example",
        "s3.localhost.localstack.cloud:4566",
        "127.0.0.1:evil",
        "[::1",
        "",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(port: int, host: str) -> None:
    assert_refused(asked(port, "POST", CREATE, {"Host": host}, FUNCTION))


def test_a_request_with_no_name_is_never_served(port: int) -> None:
    assert asked(port, "GET", "/_localstack/health", {}).status in (400, 403)


def test_of_two_names_both_must_be_this_machine(port: int) -> None:
    hosts = {"Host": [local(port), "evil.example"]}
    assert asked(port, "GET", "/_localstack/health", hosts).status in (400, 403)


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Host": "localhost", "Origin": "https://evil.example"}])
def test_a_web_socket_of_a_page_is_refused(port: int, headers: Mapping[str, str]) -> None:
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert asked(port, "GET", "/_aws/execute-api/abc/s", {**headers, **upgrade}).status == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:1", "[::1]:4566", "127.0.0.2", "bucket.localhost:4566"]
)
def test_programs_of_this_machine_are_answered(port: int, host: str) -> None:
    assert asked(port, "GET", "/_localstack/health", {"Host": host}).status == 200
    assert asked(port, "GET", "/_localstack/health", {"Host": host, "Sec-Fetch-Site": "none"}).status == 200


def test_a_page_of_the_deployed_api_itself_may_call_it_and_nothing_else(port: int) -> None:
    """Its interactive documentation does: a browser names the origin in what it posts there too."""
    own = {"Host": local(port), "Origin": f"http://{local(port)}", "Sec-Fetch-Site": "same-origin"}
    for path in ("/_aws/execute-api/abc/%24default/v1/runs", "/restapis/abc/api/_user_request_/v1/runs"):
        assert asked(port, "POST", path, own).status == 404  # no such API here: the emulator itself says so
    assert_refused(asked(port, "POST", CREATE, own, FUNCTION))
    other = {**own, "Origin": f"http://127.0.0.1:{port + 1}"}
    assert_refused(asked(port, "POST", "/_aws/execute-api/abc/%24default/v1/runs", other))
    assert_refused(
        asked(port, "POST", "/_aws/execute-api/abc/%24default/v1/runs", {**own, "Sec-Fetch-Site": "cross-site"})
    )


def test_a_page_may_watch_a_run_by_the_ticket_that_was_made_for_it_and_order_nothing_there(port: int) -> None:
    page = {"Host": local(port), "Origin": "https://a.page", "Sec-Fetch-Site": "cross-site"}
    stream = "/_aws/execute-api/abc/%24default/v1/stream/ticket"
    assert asked(port, "GET", f"{stream}?Action=CreateQueue&QueueName=theirs", page).status == 404  # no such API here
    queues = boto3.Session(**KEYS).client("sqs", endpoint_url=f"http://{local(port)}")
    assert queues.list_queues().get("QueueUrls", []) == []
    queues.close()
    assert_refused(asked(port, "POST", stream, page, FUNCTION))
    assert_refused(asked(port, "OPTIONS", stream, page))
    assert_refused(asked(port, "GET", f"{stream}/../../../../../../2015-03-31/functions", page))
    assert_refused(asked(port, "GET", stream, {**page, "Host": "evil.example"}))
