"""The HTTP API's contract through both flavours of API Gateway: the same answers, whichever stands in front."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fanfold import Client
from fanfold.local import deploy
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import LocalStack
from fanfold.service.settings import Settings
from tests.integration.conftest import free_port
from tests.support import elsewhere
from tests.support.elsewhere import API, ENDPOINT
from tests.support.eventsource import EventSource

pytestmark = pytest.mark.emulator

PROBLEM = "application/problem+json"
BIG = {
    "name": "big",
    "steps": {name: {"task": "chaos.output", "input": {"bytes": 2_600_000}} for name in ("one", "two")},
}


@pytest.fixture(scope="module", params=["http", "rest"])
def flavour(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack of each flavour: the session's own, and one more for this module's tests."""
    if request.param == API:
        yield request.getfixturevalue("stack")
        return
    if ENDPOINT:
        pytest.skip(f"the stack at {ENDPOINT} is of flavour {API}")
    state = tmp_path_factory.mktemp(request.param) / ".fanfold"
    yield deploy.up(Options(port=free_port(), api=request.param), state=state, environ=os.environ, report=print)
    deploy.down(state=state)


@pytest.fixture
def http(flavour: LocalStack) -> Iterator[httpx.Client]:
    """A plain HTTP client with a good token; paths are relative to the API's base URL."""
    headers = {"Authorization": f"Bearer {flavour.token}"}
    with httpx.Client(base_url=flavour.api_url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def stranger(flavour: LocalStack) -> Iterator[httpx.Client]:
    """The same without a token."""
    with httpx.Client(base_url=flavour.api_url, timeout=60, trust_env=False) as client:
        yield client


def submitted(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("v1/runs", json={"workflow": "tiny", **body})
    assert answer.status_code == 202, answer.text
    accepted: dict[str, Any] = answer.json()
    return accepted


def is_problem(answer: httpx.Response, status: int, slug: str) -> bool:
    told = answer.json()
    media_type = answer.headers["content-type"]
    return (answer.status_code, media_type, told["type"], told["status"]) == (status, PROBLEM, slug, status)


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
def test_a_body_that_is_not_utf8_is_refused_on_each_door(http: httpx.Client, media_type: str) -> None:
    run_id = submitted(http)["id"]
    doors = [
        ("PUT", "v1/workflows/tiny", b'{"name":"tiny\xff","steps":{}}'),
        ("POST", "v1/runs", b'{"workflow":"tiny","input":"\xff"}'),
        ("POST", "v1/runs/batch", b'{"runs":[{"workflow":"tiny","input":"\xff"}]}'),
        ("POST", f"v1/runs/{run_id}/signals/go", b'"\xff"'),
        ("POST", f"v1/runs/{run_id}/fork", b'{"from_step":"greet\xff"}'),
    ]
    for method, path, body in doors:
        answer = http.request(method, path, content=body, headers={"content-type": media_type})
        assert answer.status_code == 400, (path, answer.text)
        assert "UTF-8" in answer.json()["detail"]


def test_a_run_is_accepted_found_by_its_links_and_waited_for(http: httpx.Client) -> None:
    answer = http.post("v1/runs", json={"workflow": "tiny", "input": {"name": "Grüße, €"}})
    accepted = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, accepted["links"]["self"])
    run = http.get(accepted["links"]["self"], params={"wait": 25}).json()
    assert (run["status"], run["input"]) == ("succeeded", {"name": "Grüße, €"})
    told = http.get(accepted["links"]["events"], params={"after": 1, "limit": 2}).json()
    assert [event["seq"] for event in told["events"]] == [2, 3]


def test_what_lies_beside_a_watched_route_is_reached_by_every_method(http: httpx.Client) -> None:
    """Runs and their events are read through a function of their own; all else about them is not."""
    here = submitted(http)["links"]["self"]
    for path, allowed in ((here, "GET"), (f"{here}/events", "GET"), ("v1/runs", "GET, POST")):
        answer = http.delete(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed), answer.text
    batch = http.post("v1/runs/batch", json={"runs": [{"workflow": "tiny"}]}).json()
    assert [result["status"] for result in batch["results"]] == [202]
    assert http.get("v1/runs", params={"limit": 1}).status_code == 200
    assert http.get(here, params={"wait": 25}).json()["status"] == "succeeded"
    assert http.post(f"{here}/cancel").status_code == 409
    assert http.post(f"{here}/signals/go", json={}).status_code == 409
    assert http.get(f"{here}/nothing/there").json()["type"] == "not-found"


def test_when_as_many_wait_as_may_a_wait_is_answered_at_once_with_what_there_is(
    flavour: LocalStack, http: httpx.Client
) -> None:
    document = {"name": "patient", "steps": {"gate": {"wait": {"signal": "go"}}}}
    assert http.put("v1/workflows/patient", json=document).status_code in (200, 201)
    run = submitted(http, workflow="patient")["links"]["self"]
    table = elsewhere.session(flavour.endpoint).client("dynamodb")
    seats = [f"#seats#{number}" for number in range(Settings().max_watchers)]
    for seat in seats:
        key = {"pk": {"S": seat}, "sk": {"S": "0"}}
        ends = {"N": str(int(time.time() + 600) * 1_000)}
        table.put_item(TableName=flavour.table, Item={**key, "o": {"S": "somebody"}, "t": ends})
    try:
        began = time.monotonic()
        assert http.get(run, params={"wait": 25}).json()["status"] in ("queued", "running", "waiting")
        assert time.monotonic() - began < 20
    finally:
        for seat in seats:
            table.delete_item(TableName=flavour.table, Key={"pk": {"S": seat}, "sk": {"S": "0"}})
    assert http.post(f"{run}/signals/go", json={}).status_code == 202
    assert http.get(run, params={"wait": 25}).json()["status"] == "succeeded"


def test_a_key_makes_one_run_whatever_the_case_of_its_header(http: httpx.Client) -> None:
    body = {"workflow": "tiny", "input": 1}
    first = http.post("v1/runs", json=body, headers={"Idempotency-Key": "flavour"})
    again = http.post("v1/runs", json=body, headers={"idempotency-key": "flavour"})
    assert (first.status_code, again.status_code, again.json()["id"]) == (202, 200, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"


def test_repeated_tags_must_all_hold(http: httpx.Client) -> None:
    both = submitted(http, tags={"team": "a", "kind": "x"})["id"]
    other = submitted(http, tags={"team": "a", "kind": "y"})["id"]
    for run_id in (both, other):  # a list promises nothing of a run that moves
        assert http.get(f"v1/runs/{run_id}?wait=25").json()["status"] == "succeeded"
    for query in ("tag=team:a&tag=kind:x", "tag=team%3Da&tag=kind%3Dx"):
        listed = http.get(f"v1/runs?{query}").json()["runs"]
        assert [run["id"] for run in listed] == [both]


def test_what_is_wrong_with_a_request_is_a_problem(http: httpx.Client) -> None:
    assert is_problem(http.post("v1/runs", content=b"{"), 400, "malformed-json")
    assert is_problem(http.post("v1/runs", content=b"x" * 5_000_001), 413, "too-large")
    assert is_problem(http.post("v1/runs", json={"workflow": "no-such"}), 404, "not-found")
    assert is_problem(http.get("v1/nothing"), 404, "not-found")
    assert is_problem(http.get("v1/runs/a%20b"), 404, "not-found")
    assert is_problem(http.get("v1/runs?cursor=x"), 400, "invalid-cursor")
    assert is_problem(http.get("v1/runs?limit=0"), 422, "invalid-parameter")
    wrong = http.delete("v1/runs")
    assert is_problem(wrong, 405, "method-not-allowed")
    assert wrong.headers["allow"] == "GET, POST"


def test_a_token_is_needed_and_a_wrong_one_is_told_so(flavour: LocalStack, stranger: httpx.Client) -> None:
    wrong = stranger.get("v1/queues", headers={"Authorization": "Bearer nonsense"})
    assert is_problem(wrong, 401, "unauthorized")
    missing, nowhere = stranger.get("v1/queues"), stranger.get("nothing")
    assert (missing.status_code, nowhere.status_code) == (401, 404)
    if flavour.options["api"] == "rest":  # an HTTP API answers these itself, and knows no problems
        assert is_problem(missing, 401, "unauthorized")
        assert missing.headers["www-authenticate"] == "Bearer"
        assert is_problem(nowhere, 404, "not-found")


def test_the_verdict_on_a_token_holds_for_every_route(http: httpx.Client) -> None:
    # The first answer is kept by token: a policy for one route would forbid the next.
    assert http.get("v1/queues").status_code == 200
    assert http.get("v1/workflows").status_code == 200
    assert http.get(submitted(http)["links"]["self"]).status_code == 200


def test_a_ticket_alone_opens_the_stream_to_its_end(http: httpx.Client, stranger: httpx.Client) -> None:
    accepted = submitted(http)
    http.get(accepted["links"]["self"], params={"wait": 25})
    answer = stranger.get(accepted["links"]["stream"], headers={"Last-Event-ID": "1"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    told = list(EventSource().read(answer.text))
    assert (told[0].json["seq"], told[-1].type) == (2, "end")
    assert stranger.get(accepted["links"]["stream"][:-4]).status_code == 401


def test_an_answer_too_big_to_pass_is_in_the_bucket(flavour: LocalStack, http: httpx.Client) -> None:
    with Client(flavour.api_url, flavour.token, retry_for_seconds=60) as client:
        client.apply(BIG)
        run_id = client.wait(client.submit("big")["id"], timeout=60)["id"]
    answer = http.get(f"v1/runs/{run_id}?inline=true")
    assert answer.status_code == 303
    run = httpx.get(answer.headers["location"], trust_env=False, timeout=60).json()
    assert run["status"] == "succeeded"
    assert len(str(run["steps"])) > 5_000_000


def test_a_document_may_be_yaml_in_any_language(http: httpx.Client) -> None:
    text = 'name: polyglot\nsteps: {a: {task: core.echo, input: "häß, 漢字, €"}}\n'
    put = http.put("v1/workflows/polyglot", content=text.encode(), headers={"Content-Type": "application/yaml"})
    assert put.status_code in (200, 201), put.text
    document = http.get("v1/workflows/polyglot").json()["document"]
    assert document["steps"]["a"]["input"] == "häß, 漢字, €"


def test_health_and_documentation_are_open_and_know_their_base(flavour: LocalStack, stranger: httpx.Client) -> None:
    assert stranger.get("v1/health").json()["status"] == "ok"
    assert stranger.get("docs").headers["content-type"].startswith("text/html")
    (server,) = stranger.get("openapi.json").json()["servers"]
    assert httpx.URL(f"{flavour.api_url}/openapi.json").join(server["url"]) == httpx.URL(f"{flavour.api_url}/")
