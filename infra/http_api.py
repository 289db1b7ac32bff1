"""The HTTP API flavour: one proxied route behind the authorizer, and the routes open to everybody."""

from __future__ import annotations

import json

import jsii
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.door import AUTHORIZER_CACHE, OPEN_ROUTES, PROXIED_ROUTE, Door
from infra.function import Function

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
"""No header and no query: they hold tokens. The path of a stream holds its ticket: one run, to read, for an hour."""


@jsii.implements(gateway.IAccessLogSettings)
class _AccessLog:
    """One JSON object per request, in a log group."""

    def __init__(self, log_group: logs.ILogGroup) -> None:
        self._log_group = log_group

    @property
    def destination(self) -> gateway.IAccessLogDestination:
        """Where the lines go."""
        return gateway.LogGroupLogDestination(self._log_group)

    @property
    def format(self) -> rest.AccessLogFormat:
        """What a line holds."""
        return rest.AccessLogFormat.custom(json.dumps(ACCESS_LOG, separators=(",", ":")))


class HttpDoor(Door):
    """An HTTP API in front of the two functions, made in `scope`. What it refuses itself has a bare JSON body."""

    def __init__(
        self,
        scope: Construct,
        *,
        function: Function,
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
        integration = integrations.HttpLambdaIntegration("Integration", function.live)
        self.api.add_routes(
            path=PROXIED_ROUTE,
            methods=[gateway.HttpMethod.ANY],
            integration=integration,
            authorizer=authorizers.HttpLambdaAuthorizer(
                "Tokens",
                authorizer.live,
                response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
                identity_source=["$request.header.Authorization"],
                results_cache_ttl=AUTHORIZER_CACHE,
            ),
        )
        for path in OPEN_ROUTES:
            self.api.add_routes(
                path=path,
                methods=[gateway.HttpMethod.GET],
                integration=integration,
                authorizer=gateway.HttpNoneAuthorizer(),
            )
        self.url = self._stage.url
        self.api_id = self.api.api_id
