"""The HTTP API: one proxied route behind the authorizer, and the public routes."""

from __future__ import annotations

import json

import jsii
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
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

ACCESS_LOG = {
    "at": "$context.requestTimeEpoch",
    "request": "$context.requestId",
    "ip": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "route": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "total_ms": "$context.responseLatency",
    "function_ms": "$context.integrationLatency",
    "authorizer_error": "$context.authorizer.error",
    "error": "$context.error.message",
    "integration_error": "$context.integrationErrorMessage",
}
"""Fields of the access log. Headers and queries contain tokens. A stream's path contains its one-hour ticket."""


@jsii.implements(gateway.IAccessLogSettings)
class _AccessLog:
    """One JSON object per request, in a log group."""

    def __init__(self, log_group: logs.ILogGroup) -> None:
        self._log_group = log_group

    @property
    def destination(self) -> gateway.IAccessLogDestination:
        """The log group of the lines."""
        return gateway.LogGroupLogDestination(self._log_group)

    @property
    def format(self) -> rest.AccessLogFormat:
        """The format of a line."""
        return rest.AccessLogFormat.custom(json.dumps(ACCESS_LOG, separators=(",", ":")))


class HttpGateway(ApiGateway):
    """An HTTP API in front of the functions, created in `scope`. Its own errors have a plain JSON body."""

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
    ) -> None:
        self.api = gateway.HttpApi(scope, "Http", create_default_stage=False, description="Fanfold")
        self._stage = gateway.HttpStage(
            scope,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=_AccessLog(log_group),
            throttle=gateway.ThrottleSettings(rate_limit=requests_per_second, burst_limit=burst),
        )
        integration = _integration("Integration", function)
        watching = _integration("Watching", watch)
        tokens = authorizers.HttpLambdaAuthorizer(
            "Tokens",
            authorizer.live,
            response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
            identity_source=["$request.header.Authorization"],
            results_cache_ttl=AUTHORIZER_CACHE,
        )
        self.api.add_routes(
            path=PROXIED_ROUTE, methods=[gateway.HttpMethod.ANY], integration=integration, authorizer=tokens
        )
        # The most specific route counts. Other methods of these paths use the proxied route.
        for path in WATCHED_ROUTES:
            self.api.add_routes(path=path, methods=[gateway.HttpMethod.GET], integration=watching, authorizer=tokens)
        for path, asked in {**dict.fromkeys(OPEN_ROUTES, integration), STREAM_ROUTE: watching}.items():
            self.api.add_routes(
                path=path,
                methods=[gateway.HttpMethod.GET],
                integration=asked,
                authorizer=gateway.HttpNoneAuthorizer(),
            )
        self.url = self._stage.url
        self.api_id = self.api.api_id


def _integration(name: str, function: Function) -> integrations.HttpLambdaIntegration:
    """One permission for all routes: a stack has at most 500 resources."""
    return integrations.HttpLambdaIntegration(name, function.live, scope_permission_to_route=False)
