"""The REST API: the same routes and functions. Errors of API Gateway itself are problem documents too."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_apigateway as gateway
from aws_cdk import aws_logs as logs
from constructs import Construct

from fanfold.cdk.api_gateway import (
    AUTHORIZER_CACHE,
    OPEN_ROUTES,
    PROXIED_ROUTE,
    STREAM_ROUTE,
    WATCHED_ROUTES,
    ApiGateway,
)
from fanfold.cdk.function import Function
from fanfold.engine.errors import Unavailable
from fanfold.service.api.problems import (
    PROBLEM_JSON,
    Problem,
    forbidden,
    problem_of,
    throttled,
    too_large,
    unauthorized,
)

STAGE = "api"
"""The stage. A REST API has no default stage, so its base URL ends in this."""
TIMEOUT = Duration.seconds(29)
"""The longest integration timeout without a higher quota (API Gateway quotas, REST)."""
ACCESS_LOG = {
    "at": "$context.requestTimeEpoch",
    "request": "$context.requestId",
    "ip": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "route": "$context.resourcePath",
    "path": "$context.path",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "total_ms": "$context.responseLatency",
    "function_ms": "$context.integration.latency",
    "authorizer_error": "$context.authorizer.error",
    "error": "$context.error.message",
    "integration_error": "$context.integration.error",
}
"""The same keys as in the HTTP API's access log, with a REST API's variables. No headers and no queries."""


_UNAUTHORIZED = unauthorized("a bearer token that this deployment knows is needed").problem
_FORBIDDEN = forbidden("this request is not let through").problem
_NOT_FOUND = Problem(slug="not-found", title="Not found", status=404, detail="there is nothing at this address")
_TOO_LARGE = too_large("the request is larger than API Gateway takes").problem
_THROTTLED = throttled("this deployment gets more requests than its limit", retry_after_seconds=1).problem
_UNAVAILABLE = problem_of(Unavailable("API Gateway had no answer"))
_BAD_REQUEST = Problem(
    slug="bad-request", title="Bad request", status=400, detail="API Gateway does not understand this request"
)

PROBLEMS: Mapping[str, Problem] = {
    "UNAUTHORIZED": _UNAUTHORIZED,
    "ACCESS_DENIED": _FORBIDDEN,
    "WAF_FILTERED": _FORBIDDEN,
    # The answer if no route or method matches; API Gateway's default is a 403.
    "MISSING_AUTHENTICATION_TOKEN": _NOT_FOUND,
    "RESOURCE_NOT_FOUND": _NOT_FOUND,
    "REQUEST_TOO_LARGE": _TOO_LARGE,
    "THROTTLED": _THROTTLED,
    "DEFAULT_4XX": _BAD_REQUEST,
    # A function that was throttled, killed or too slow, or an authorizer that could not read the table.
    "AUTHORIZER_FAILURE": _UNAVAILABLE,
    "AUTHORIZER_CONFIGURATION_ERROR": _UNAVAILABLE,
    "INTEGRATION_FAILURE": _UNAVAILABLE,
    "INTEGRATION_TIMEOUT": _UNAVAILABLE,
    "DEFAULT_5XX": _UNAVAILABLE,
}
"""Our answer by API Gateway's response type. The defaults cover every other type."""


BESIDE_WATCHED = ("/v1/runs", "/v1/runs/{id}", "/v1/runs/{id}/events", "/v1/runs/{id}/{proxy+}")
"""Methods of watched resources. A REST API takes the closest resource whatever its methods, never the greedy route."""


class RestGateway(ApiGateway):
    """A REST API in front of the functions, made in `scope`.

    `emulated`: without the account-wide role for API Gateway's logs, which emulators may lack.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        function: Function,
        watch: Function,
        authorizer: Function,
        log_group: logs.ILogGroup,
        requests_per_second: int,
        burst: int,
        emulated: bool,
    ) -> None:
        self.api = gateway.RestApi(
            scope,
            "Rest",
            description="Fanfold",
            endpoint_types=[gateway.EndpointType.REGIONAL],
            # An account has one role for logs in each region. Deleting this stack must not remove it.
            cloud_watch_role=not emulated,
            cloud_watch_role_removal_policy=None if emulated else RemovalPolicy.RETAIN,
            deploy_options=gateway.StageOptions(
                stage_name=STAGE,
                throttling_rate_limit=requests_per_second,
                throttling_burst_limit=burst,
                access_log_destination=gateway.LogGroupLogDestination(log_group),
                access_log_format=gateway.AccessLogFormat.custom(json.dumps(ACCESS_LOG, separators=(",", ":"))),
            ),
        )
        integration, watching = _integration(function), _integration(watch)
        tokens = gateway.TokenAuthorizer(
            scope,
            "Tokens",
            handler=authorizer.live,
            identity_source=gateway.IdentitySource.header("Authorization"),
            results_cache_ttl=AUTHORIZER_CACHE,
        )
        for path in (PROXIED_ROUTE, *BESIDE_WATCHED):
            self.api.root.resource_for_path(path).add_method("ANY", integration, authorizer=tokens)
        for path in WATCHED_ROUTES:
            self.api.root.resource_for_path(path).add_method("GET", watching, authorizer=tokens)
        for path, asked in {**dict.fromkeys(OPEN_ROUTES, integration), STREAM_ROUTE: watching}.items():
            self.api.root.resource_for_path(path).add_method(
                "GET", asked, authorization_type=gateway.AuthorizationType.NONE
            )
        for kind, problem in PROBLEMS.items():
            self.api.add_gateway_response(
                kind.title().replace("_", ""),
                type=gateway.ResponseType.of(kind),
                status_code=str(problem.status),
                response_headers=_headers(problem),
                # API Gateway uses this template whatever the request accepts.
                templates={"application/json": problem.body()},
            )
        self.url = self.api.url  # it has the stage in it
        self.api_id = self.api.rest_api_id


def _integration(function: Function) -> gateway.LambdaIntegration:
    return gateway.LambdaIntegration(
        function.live,
        allow_test_invoke=False,
        # One permission for all methods: a function's policy has 20 KB.
        scope_permission_to_method=False,
        timeout=TIMEOUT,
    )


def _headers(problem: Problem) -> dict[str, str]:
    """Constants, in the quotes that make them so."""
    return {name: f"'{value}'" for name, value in {"Content-Type": PROBLEM_JSON, **problem.headers}.items()}
