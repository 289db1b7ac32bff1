"""The OpenAPI document describes the calls as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from fanfold.service.api.routes import CALLS
from tests.support.http import TINY, Http, memory_services


@pytest.fixture
def http() -> Http:
    return Http(services=memory_services())


@pytest.fixture
async def document(http: Http) -> Any:
    reply = await http("GET", "/openapi.json", verdict=None)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    return reply.json


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


async def test_it_is_openapi_3_1_and_every_reference_in_it_leads_somewhere(document: Any) -> None:
    assert document["openapi"].startswith("3.1")
    found = set(references(document))
    assert found
    for reference in found:
        assert reference.startswith("#/components/schemas/")
        assert reference.rsplit("/", 1)[-1] in document["components"]["schemas"]


async def test_it_has_every_call(document: Any) -> None:
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == {(call.method, call.path) for call in CALLS} | {("GET", "/v1/health")}


async def test_every_call_is_in_a_section_that_is_described(document: Any) -> None:
    sections = {tag["name"] for tag in document["tags"]}
    found = {tag for item in document["paths"].values() for operation in item.values() for tag in operation["tags"]}
    assert all(len(operation["tags"]) == 1 for item in document["paths"].values() for operation in item.values())
    assert found == sections
    assert document["paths"]["/v1/runs/{id}/cancel"]["post"]["tags"] == ["operations"]


async def test_every_call_tells_its_good_and_bad_answers(document: Any) -> None:
    for call in CALLS:
        operation = document["paths"][call.path][call.method.lower()]
        assert {str(status) for status in call.answers} <= set(operation["responses"])
        for status in ("401", "500", "503", *(() if call.scope is None else ("403",))):
            assert "application/problem+json" in operation["responses"][status]["content"]


async def test_models_describe_the_names_that_go_over_the_wire(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert {"class", "input", "output", "steps", "links"} <= set(schemas["RunView"]["properties"])
    assert set(schemas["Links"]["properties"]) == {"self", "events", "stream"}
    assert "$ref" in schemas["BigValue"]["properties"]
    assert schemas["SubmitBody"]["required"] == ["workflow"]
    parameters = document["paths"]["/v1/runs"]["get"]["parameters"]
    assert {item["name"] for item in parameters} == {"limit", "cursor", "status", "workflow", "tag"}


async def test_answers_have_exactly_the_fields_their_schemas_name(http: Http, document: Any) -> None:
    await http("PUT", "/v1/workflows/tiny", TINY)
    accepted = (await http("POST", "/v1/runs", {"workflow": "tiny"})).json
    shown = {
        "Accepted": accepted,
        "RunView": (await http("GET", f"/v1/runs/{accepted['id']}")).json,
        "ListedRun": (await http("GET", "/v1/runs")).json["runs"][0],
        "EventList": (await http("GET", f"/v1/runs/{accepted['id']}/events")).json,
        "WorkflowView": (await http("GET", "/v1/workflows/tiny")).json,
        "QueueView": (await http("GET", "/v1/queues")).json["queues"][0],
    }
    for name, answer in shown.items():
        assert set(answer) == set(document["components"]["schemas"][name]["properties"]), name


async def test_it_is_plain_json(document: Any) -> None:
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for item in document["paths"].values():
        for operation in item.values():
            yield operation["operationId"], operation


def by_its_schema(document: Any, schema: Any, example: Any) -> list[str]:
    """What is wrong with an example."""
    whole = {**schema, "components": document["components"]}
    return [error.message for error in jsonschema_rs.Draft202012Validator(whole).iter_errors(example)]


async def test_every_body_and_answer_has_an_example_that_its_schema_allows(document: Any) -> None:
    wrong, seen = [], 0
    for name, operation in operations(document):
        for where in (operation.get("requestBody", {}), *operation["responses"].values()):
            for media_type, content in where.get("content", {}).items():
                if "yaml" in media_type or media_type == "text/event-stream":
                    continue
                seen += 1
                wrong += [(name, said) for said in by_its_schema(document, content["schema"], content["example"])]
    assert (wrong, seen > 100) == ([], True)


async def test_the_examples_of_answers_have_all_that_an_answer_has(document: Any) -> None:
    schemas = document["components"]["schemas"]
    for _, operation in operations(document):
        for status in ("200", "202"):
            content = operation["responses"].get(status, {}).get("content", {}).get("application/json")
            if content is not None:
                fields = schemas[content["schema"]["$ref"].rsplit("/", 1)[-1]]["properties"]
                assert set(content["example"]) == set(fields), operation["operationId"]


async def test_a_problems_example_has_the_status_it_stands_at(document: Any) -> None:
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            problem = response.get("content", {}).get("application/problem+json")
            assert problem is None or problem["example"]["status"] == int(status), name


async def test_the_examples_of_requests_work_one_after_another(http: Http, document: Any) -> None:
    given = dict(operations(document))

    def example(name: str, media_type: str = "application/json") -> Any:
        return given[name]["requestBody"]["content"][media_type]["example"]

    def parameter(name: str, of: str) -> str:
        return next(str(each["example"]) for each in given[name]["parameters"] if each["name"] == of)

    workflow = f"/v1/workflows/{parameter('registerWorkflow', 'name')}"
    key = {"Idempotency-Key": parameter("submitRun", "Idempotency-Key")}
    registered = await http("PUT", workflow, example("registerWorkflow"))
    again = await http(
        "PUT",
        workflow,
        example("registerWorkflow", "application/yaml"),
        headers={"content-type": "application/yaml"},
    )
    assert (registered.status, again.status) == (201, 200)
    run = await http("POST", "/v1/runs", example("submitRun"), headers=key)
    batch = await http("POST", "/v1/runs/batch", example("submitRuns"), headers=key)
    assert (run.status, [each["status"] for each in batch.json["results"]]) == (202, [202, 202])
    at = f"/v1/runs/{run.json['id']}"
    signalled = await http("POST", f"{at}/signals/{parameter('signalRun', 'name')}", example("signalRun"))
    assert signalled.status == 202
    step = example("forkRun")["from_step"]
    assert step in (await http("GET", workflow)).json["document"]["steps"]
