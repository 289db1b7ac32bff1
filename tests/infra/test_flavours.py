"""Both flavours of the API: the same routes and functions behind them, and a REST API that answers in problems."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fanfold.cdk import http_api, rest_api
from fanfold.service.api.problems import INTERNAL, PROBLEM_JSON
from fanfold.service.api.routes import CALLS, Call
from tests.infra.conftest import ONE_CLASS, Synthesised, mentioned

WATCHED = ("GET /v1/runs/{id}", "GET /v1/runs/{id}/events")
OPEN = {
    "GET /v1/health": "NONE",
    "GET /openapi.json": "NONE",
    "GET /docs": "NONE",
    "GET /v1/stream/{ticket}": "NONE",
}


@pytest.fixture(scope="module")
def rest(synth: Callable[..., Synthesised]) -> Synthesised:
    """The REST API flavour as it goes to a real account; the rules have passed it."""
    return synth({"stage": "prod", "api": "rest", "requests_per_second": "800", "classes": ONE_CLASS}, nag=True)


def methods(stack: Synthesised) -> dict[str, dict[str, Any]]:
    """A REST API's methods by name and path."""
    parts = stack.all("AWS::ApiGateway::Resource")

    def path(reference: Any) -> str:
        if "Ref" not in reference:
            return ""
        resource = parts[reference["Ref"]]
        return f"{path(resource['ParentId'])}/{resource['PathPart']}"

    return {
        f"{method['HttpMethod']} {path(method['ResourceId'])}": method
        for method in stack.all("AWS::ApiGateway::Method").values()
    }


def responses(stack: Synthesised) -> dict[str, dict[str, Any]]:
    return {each["ResponseType"]: each for each in stack.all("AWS::ApiGateway::GatewayResponse").values()}


def test_both_flavours_have_the_same_routes_and_leave_the_same_ones_open(prod: Synthesised, rest: Synthesised) -> None:
    routes = {r["RouteKey"]: r["AuthorizationType"] for r in prod.all("AWS::ApiGatewayV2::Route").values()}
    beside = {f"ANY {path}": "CUSTOM" for path in rest_api.BESIDE_WATCHED}

    assert routes == {"ANY /v1/{proxy+}": "CUSTOM", **dict.fromkeys(WATCHED, "CUSTOM"), **OPEN}
    assert {name: method["AuthorizationType"] for name, method in methods(rest).items()} == {**routes, **beside}


def test_a_rest_api_has_a_method_for_every_call_at_the_resource_that_is_closest_to_its_path(rest: Synthesised) -> None:
    """It takes the closest resource whatever its methods, and answers 404 itself where that has not the one asked."""
    for call in CALLS:
        assert {f"{call.method} {closest(rest, call.path)}", f"ANY {closest(rest, call.path)}"} & set(methods(rest))


def closest(stack: Synthesised, path: str) -> str:
    """The resource that a REST API finds for a path: part by part, a literal before a variable, a greedy one last."""
    paths = {name.partition(" ")[2] for name in methods(stack)}
    nodes = {"/".join(each.split("/")[:length]) for each in paths for length in range(1, len(each.split("/")) + 1)}

    def find(at: str, rest: list[str]) -> str | None:
        if not rest:
            return at
        for part in (rest[0], "{id}", "{ticket}"):
            if f"{at}/{part}" in nodes and (found := find(f"{at}/{part}", rest[1:])):
                return found
        return f"{at}/{{proxy+}}" if f"{at}/{{proxy+}}" in nodes else None

    found = find("", path.strip("/").split("/"))
    assert found is not None, path
    return found


def callers(stack: Synthesised) -> dict[str, str]:
    """The module of the function behind each route of an HTTP API, or method of a REST API."""
    modules = {name: f["Handler"].split(".")[1] for name, f in stack.all("AWS::Lambda::Function").items()}

    def module(target: Any) -> str:
        (alias,) = set(mentioned(target)) & set(stack.all("AWS::Lambda::Alias"))
        return modules[stack.called({"Ref": alias})]

    integrations = stack.all("AWS::ApiGatewayV2::Integration")
    behind = {name: module(method["Integration"]["Uri"]) for name, method in methods(stack).items()}
    for route in stack.all("AWS::ApiGatewayV2::Route").values():
        (integration,) = set(mentioned(route["Target"])) & set(integrations)
        behind[route["RouteKey"]] = module(integrations[integration]["IntegrationUri"])
    return behind


def test_what_can_be_waited_for_is_answered_by_a_small_function_of_its_own_and_nothing_else_is(
    prod: Synthesised, rest: Synthesised
) -> None:
    for stack in (prod, rest):
        watched = {route for route, module in callers(stack).items() if module == "watch"}
        assert watched == {*WATCHED, "GET /v1/stream/{ticket}"}
        assert watched == {f"{call.method} {call.path}" for call in CALLS if waits(call)}
        assert {module for route, module in callers(stack).items() if route not in watched} == {"api"}
        functions = stack.functions()
        assert functions["watch"]["MemorySize"] < functions["api"]["MemorySize"]
        assert functions["watch"]["Timeout"] == functions["api"]["Timeout"]


def waits(call: Call) -> bool:
    return call.streamed or (call.query is not None and "wait" in call.query.model_fields)


def test_a_verdict_on_a_token_is_kept_for_five_minutes(prod: Synthesised, rest: Synthesised) -> None:
    (simple,) = prod.all("AWS::ApiGatewayV2::Authorizer").values()
    (token,) = rest.all("AWS::ApiGateway::Authorizer").values()

    assert simple["EnableSimpleResponses"] is True
    assert (simple["AuthorizerResultTtlInSeconds"], simple["IdentitySource"]) == (
        300,
        ["$request.header.Authorization"],
    )
    assert (token["AuthorizerResultTtlInSeconds"], token["Type"]) == (300, "TOKEN")
    assert token["IdentitySource"] == "method.request.header.Authorization"


def test_no_page_of_another_origin_may_use_a_token(prod: Synthesised, rest: Synthesised) -> None:
    (api,) = prod.all("AWS::ApiGatewayV2::Api").values()

    assert "CorsConfiguration" not in api
    assert not [name for name in methods(rest) if name.startswith("OPTIONS")]


def test_every_method_is_answered_before_the_gateway_gives_up(rest: Synthesised) -> None:
    assert "GET /v1/runs/{id}" in methods(rest)
    for method in methods(rest).values():
        assert (method["Integration"]["Type"], method["Integration"]["TimeoutInMillis"]) == ("AWS_PROXY", 29_000)
    assert max(rest.functions()[module]["Timeout"] for module in ("api", "watch")) < 29


def test_a_request_leaves_one_json_line_without_a_token(prod: Synthesised, rest: Synthesised) -> None:
    (stage,) = prod.all("AWS::ApiGatewayV2::Stage").values()
    (other,) = rest.all("AWS::ApiGateway::Stage").values()
    lines = [
        json.loads(stage["AccessLogSettings"]["Format"]),
        json.loads(other["AccessLogSetting"]["Format"]),
    ]

    for line in lines:
        assert {"status", "route", "function_ms"} <= set(line)
        assert not [value for value in line.values() if "header" in value or "query" in value.lower()]
    assert set(http_api.ACCESS_LOG) == set(rest_api.ACCESS_LOG)
    assert other["AccessLogSetting"]["DestinationArn"]


def test_a_stage_takes_so_many_requests_and_no_more(prod: Synthesised, rest: Synthesised) -> None:
    (stage,) = prod.all("AWS::ApiGatewayV2::Stage").values()
    (other,) = rest.all("AWS::ApiGateway::Stage").values()
    (limits,) = other["MethodSettings"]

    assert stage["DefaultRouteSettings"] == {"ThrottlingRateLimit": 5_000, "ThrottlingBurstLimit": 2_500}
    assert (limits["HttpMethod"], limits["ResourcePath"]) == ("*", "/*")
    assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == (800, 400)


def test_what_a_rest_api_answers_itself_is_a_problem(rest: Synthesised) -> None:
    assert {"UNAUTHORIZED", "ACCESS_DENIED", "REQUEST_TOO_LARGE", "THROTTLED", "DEFAULT_4XX", "DEFAULT_5XX"} <= set(
        responses(rest)
    )
    for response in responses(rest).values():
        told = json.loads(response["ResponseTemplates"]["application/json"])
        assert str(told["status"]) == response["StatusCode"]
        assert told["type"] not in ("", INTERNAL.slug)
        assert set(told) == {"type", "title", "status", "detail"}
        assert response["ResponseParameters"]["gatewayresponse.header.Content-Type"] == f"'{PROBLEM_JSON}'"


@pytest.mark.parametrize(
    ("kind", "status", "slug", "header"),
    [
        ("UNAUTHORIZED", 401, "unauthorized", ("WWW-Authenticate", "'Bearer'")),
        ("ACCESS_DENIED", 403, "forbidden", None),
        ("MISSING_AUTHENTICATION_TOKEN", 404, "not-found", None),
        ("REQUEST_TOO_LARGE", 413, "too-large", None),
        ("THROTTLED", 429, "throttled", ("Retry-After", "'1'")),
        ("INTEGRATION_TIMEOUT", 503, "unavailable", ("Retry-After", "'2'")),
        ("DEFAULT_5XX", 503, "unavailable", ("Retry-After", "'2'")),
    ],
)
def test_each_refusal_of_a_rest_api_says_what_ours_would(
    rest: Synthesised, kind: str, status: int, slug: str, header: tuple[str, str] | None
) -> None:
    response = responses(rest)[kind]

    assert (response["StatusCode"], json.loads(response["ResponseTemplates"]["application/json"])["type"]) == (
        str(status),
        slug,
    )
    if header is not None:
        assert response["ResponseParameters"][f"gatewayresponse.header.{header[0]}"] == header[1]


def test_a_rest_api_is_deployed_with_its_refusals(rest: Synthesised) -> None:
    (deployment,) = (r for r in rest.template["Resources"].values() if r["Type"] == "AWS::ApiGateway::Deployment")

    # A deployment is a snapshot: what is not there yet is not in it.
    assert set(rest.all("AWS::ApiGateway::GatewayResponse")) <= set(deployment["DependsOn"])


def test_the_base_url_of_a_rest_api_has_its_stage_in_it(rest: Synthesised) -> None:
    (stage,) = rest.all("AWS::ApiGateway::Stage")
    (api,) = rest.all("AWS::ApiGateway::RestApi")

    url = rest.text(rest.template["Outputs"]["ApiUrl"]["Value"])
    assert url == f"https://{api}.execute-api.AWS::Region.AWS::URLSuffix/{stage}/"
    assert rest.all("AWS::ApiGateway::Stage")[stage]["StageName"] == "api"


def test_what_shows_runs_may_write_seats_and_secrets_and_no_run(prod: Synthesised) -> None:
    role = prod.functions()["watch"]["Role"]["Fn::GetAtt"][0]
    statements = [
        statement
        for policy in prod.all("AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    (writing,) = (s for s in statements if "dynamodb:PutItem" in s["Action"])

    assert writing["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#seats#*", "#secrets"]}}
    assert not [s for s in statements if "sqs:" in str(s["Action"]) or "states:" in str(s["Action"])]
