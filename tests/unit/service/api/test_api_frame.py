"""What holds for every call: tokens, scopes, routes, errors, health, docs; and workflows and queues."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from fanfold.engine.errors import LimitExceeded, Throttled, Unanswered
from fanfold.service.api.routes import CALLS
from fanfold.service.version import VERSION
from tests.support.http import PAIR, TINY, Http, memory_services, settings_with

ROOT = Path(__file__).parents[4]


@pytest.fixture
def http() -> Http:
    return Http(services=memory_services())


class Broken:
    """A port whose every method raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        async def call(*args: object, **given: object) -> Any:
            raise self._error

        return call


@pytest.mark.parametrize("call", [call for call in CALLS if call.scope], ids=lambda call: call.name)
async def test_every_call_needs_a_token_and_its_own_scope(http: Http, call: Any) -> None:
    path = call.path.replace("{", "").replace("}", "")
    for verdict in (None, "unknown", "revoked", "expired", "nonsense"):
        reply = await http(call.method, path, verdict=verdict)
        assert (reply.status, reply.json["type"]) == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
    others = " ".join({"submit", "read", "operate", "admin"} - {call.scope})
    reply = await http(call.method, path, scopes=others)
    assert (reply.status, reply.json["type"]) == (403, "forbidden")
    assert call.scope in reply.json["detail"]
    assert (await http(call.method, path, scopes=call.scope)).status not in {401, 403, 500}


async def test_a_path_that_is_none_is_404_and_a_wrong_method_405(http: Http) -> None:
    assert (await http("GET", "/v1/nothing")).json["type"] == "not-found"
    reply = await http("DELETE", "/v1/runs")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize("version", ["2.0", "1.0"])
async def test_calls_that_need_no_token_know_their_methods_too(version: str) -> None:
    http = Http(services=memory_services(), version=version)
    reply = await http("POST", "/v1/health")
    assert (reply.status, reply.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("name", ["x" * 3_000, "%00", "a b", "ü", ".", "RUN!"])
async def test_what_can_be_no_id_or_name_is_404_and_never_asked_for(name: str) -> None:
    asked = Broken(AssertionError("asked"))
    http = Http(services=memory_services(runs=asked, catalog=asked))
    for path in (f"/v1/runs/{name}", f"/v1/runs/{name}/events", f"/v1/workflows/{name}"):
        assert (await http("GET", path)).status == 404


async def test_a_document_too_big_for_its_store_is_413() -> None:
    http = Http(services=memory_services(catalog=Broken(LimitExceeded("dynamodb.item_bytes", "too big"))))
    reply = await http("PUT", "/v1/workflows/tiny", TINY)
    assert (reply.status, reply.json["type"]) == (413, "too-large")


@pytest.mark.parametrize("error", [Throttled("busy"), Unanswered("silence")])
async def test_a_service_that_does_not_answer_is_503_with_a_time_to_come_back(error: Exception) -> None:
    http = Http(services=memory_services(runs=Broken(error)))
    reply = await http("GET", "/v1/runs/r1")
    assert (reply.status, reply.json["type"]) == (503, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    assert "busy" not in reply.text


async def test_an_unexpected_error_shows_nothing_of_itself_and_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    http = Http(services=memory_services(runs=Broken(ZeroDivisionError("the secret"))))
    reply = await http("GET", "/v1/runs/r1")
    assert (reply.status, reply.json["type"]) == (500, "internal")
    assert "secret" not in reply.text
    assert "the secret" in capsys.readouterr().out


async def test_an_event_that_is_none_is_a_problem_too(http: Http) -> None:
    assert (await http.app.answer({"version": "2.0"}, None))["statusCode"] == 500
    assert (await http.app.answer({}, None))["statusCode"] == 500


async def test_health_needs_no_token(http: Http) -> None:
    assert (await http("GET", "/v1/health", verdict=None)).json == {"status": "ok", "version": VERSION}


def test_the_version_is_that_of_the_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


async def test_the_docs_are_one_page_that_loads_nothing(http: Http) -> None:
    reply = await http("GET", "/docs", verdict=None)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/html")
    assert "submitRun" in reply.text
    assert "<script src" not in reply.text
    assert "<link" not in reply.text


async def test_the_docs_link_to_the_document_that_they_show(http: Http) -> None:
    page = (await http("GET", "/docs", verdict=None)).text
    (link,) = re.findall(r'updateUrl\(new URL\("([^"]+)", window.location.href\).href\)', page)
    assert urljoin("https://x.example/stage/docs", link) == "https://x.example/stage/openapi.json"
    document = (await http("GET", "/openapi.json", verdict=None)).text
    shown = page.partition("spec: ")[2].splitlines()[0].rstrip(",")
    assert json.loads(shown) == json.loads(document)
    assert "<" not in shown


def test_the_app_answers_as_a_lambda_handler_does(http: Http) -> None:
    for _ in range(2):
        result = http.app(http.event("GET", "/v1/queues"), None)
        assert result["statusCode"] == 200
    http.app.close()


# --- workflows --------------------------------------------------------------------------------


async def test_a_workflow_is_new_once_and_unchanged_after_that(http: Http) -> None:
    first = await http("PUT", "/v1/workflows/tiny", TINY)
    again = await http("PUT", "/v1/workflows/tiny", json.dumps(TINY, indent=2))
    assert (first.status, again.status) == (201, 200)
    assert first.json == again.json
    assert set(first.json) == {"name", "version", "created_at"}
    assert first.json["version"].startswith("sha256:")


async def test_a_yaml_document_is_the_same_workflow_as_its_json(http: Http) -> None:
    first = await http("PUT", "/v1/workflows/tiny", TINY)
    text = "name: tiny\nsteps:\n  only: {task: core.echo, input: '${input}'}\n"
    second = await http(
        "PUT", "/v1/workflows/tiny", text, headers={"Content-Type": "application/yaml; charset=utf-8"}, encoded=True
    )
    assert (second.status, second.json["version"]) == (200, first.json["version"])


async def test_every_problem_of_a_document_is_told_at_once(http: Http) -> None:
    bad = {"name": "bad", "steps": {"a": {"task": "no.such"}, "b": {"task": "core.echo", "needs": ["zzz"]}}}
    reply = await http("PUT", "/v1/workflows/bad", bad)
    assert (reply.status, reply.json["type"]) == (422, "invalid-document")
    pointers = " ".join(error["pointer"] for error in reply.json["errors"])
    assert "/steps/a/task" in pointers
    assert "/steps/b/needs" in pointers


async def test_a_document_under_another_name_is_refused(http: Http) -> None:
    assert (await http("PUT", "/v1/workflows/other", TINY)).status == 422


@pytest.mark.parametrize("body", ["[]", "null", '"x"', "{}", '{"name": "tiny", "steps": {}}'])
async def test_a_document_of_the_wrong_shape_is_422(http: Http, body: str) -> None:
    assert (await http("PUT", "/v1/workflows/tiny", body)).status == 422


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("name: tiny\nname: tiny\n", 400),
        ("a: {b: 1, b: 2}", 400),
        ("a: [", 400),
        ("a: .nan", 400),
        ("a: -.inf", 400),
        ("a: !!python/object/apply:os.system [ls]", 400),
        ("a: !!timestamp 2026-13-45", 400),
        ("a: !!int ''", 400),
        ("? [1]\n: 2", 400),
        ("--- 1\n--- 2", 400),
        ("[" * 500 + "]" * 500, 400),
        ("&a [*a]", 400),
        ("a: &a [x, x, x, x, x, x, x, x, x, x]\n"
         + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)), 400),
        ("name: tiny\n1: x", 400),
        ("a: !!binary aGk=", 400),
        ("a: !!set {x}", 400),
        ("name: tiny\nversion: 2026-01-01", 422),
        ("", 422),
    ],
)  # fmt: skip
async def test_yaml_that_json_can_not_say_is_refused(http: Http, text: str, status: int) -> None:
    reply = await http("PUT", "/v1/workflows/tiny", text, headers={"content-type": "application/yaml"})
    assert reply.status == status


async def test_yaml_merge_keys_may_be_overridden(http: Http) -> None:
    text = "name: m\nsteps:\n  a: &a {task: core.echo, timeout: 5s}\n  b:\n    <<: *a\n    timeout: 9s\n"
    assert (await http("PUT", "/v1/workflows/m", text, headers={"content-type": "text/yaml"})).status == 201
    document = (await http("GET", "/v1/workflows/m")).json["document"]
    assert document["steps"]["b"] == {"task": "core.echo", "timeout": "9s"}


async def test_a_workflow_shows_its_document_and_all_its_versions(http: Http) -> None:
    first = (await http("PUT", "/v1/workflows/tiny", TINY)).json["version"]
    second = (await http("PUT", "/v1/workflows/tiny", {**TINY, "timeout": "5m"})).json["version"]
    shown = (await http("GET", "/v1/workflows/tiny")).json
    assert (shown["version"], shown["document"]["timeout"]) == (second, "5m")
    assert {item["version"] for item in shown["versions"]} == {first, second}
    assert (await http("GET", f"/v1/workflows/tiny?version={first}")).json["document"] == TINY
    assert (await http("GET", "/v1/workflows/tiny?version=sha256:no")).status == 404
    assert (await http("GET", "/v1/workflows/tiny", tenant="other")).status == 404


async def test_workflows_are_listed_by_name_in_pages(http: Http) -> None:
    for document in (TINY, PAIR, {**TINY, "name": "alpha"}):
        await http("PUT", f"/v1/workflows/{document['name']}", document)
    first = (await http("GET", "/v1/workflows?limit=2")).json
    assert [item["name"] for item in first["workflows"]] == ["alpha", "pair"]
    second = (await http("GET", f"/v1/workflows?limit=2&cursor={first['next_cursor']}")).json
    assert ([item["name"] for item in second["workflows"]], second["next_cursor"]) == (["tiny"], None)
    assert (await http("GET", f"/v1/workflows?cursor={first['next_cursor']}", tenant="other")).status == 400


# --- queues -----------------------------------------------------------------------------------


async def test_queues_tell_what_waits_in_each_lane() -> None:
    http = Http(services=memory_services(settings_with(lanes=("high", "normal"), max_queue_depth=7)))
    await http("PUT", "/v1/workflows/tiny", TINY)
    await http("POST", "/v1/runs", {"workflow": "tiny", "lane": "high"})
    await http("POST", "/v1/runs", {"workflow": "tiny", "delay": 60})
    assert (await http("GET", "/v1/queues")).json == {
        "queues": [
            {
                "class": "model",
                "lanes": {"high": {"queued": 1}, "normal": {"queued": 1}},
                "queued": 2,
                "max_queue_depth": 7,
                "oldest_age_seconds": None,
                "drain_per_second": None,
            }
        ]
    }
