"""The HTTP API: one proxied route behind the authorizer, the routes open to everybody, a JSON access log."""

from __future__ import annotations

import json

import jsii
from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.function import Function, Package

TIMEOUT = Duration.seconds(29)
"""Less than the 30 s after which an HTTP API answers by itself, so that our own answer comes first."""
AUTHORIZER_CACHE = Duration.minutes(5)
"""A revoked token works this much longer at most (design.md, section 7)."""
OPEN_ROUTES = ("/v1/health", "/openapi.json", "/docs", "/v1/stream/{ticket}")
"""Routes without the authorizer. A stream's ticket is its authorization: the handler checks it."""
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
    "authorizer_ms": "$context.authorizer.latency",
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
        return rest.AccessLogFormat.custom(json.dumps(ACCESS_LOG))


class Api(Construct):
    """Exposes `url` (ending in a slash), and the two functions behind it."""

    def __init__(self, scope: Construct, name: str, *, package: Package) -> None:
        super().__init__(scope, name)
        self.function = Function(
            self,
            "Api",
            module="api",
            package=package,
            timeout=TIMEOUT,
            memory_mb=1_024,
            description="Answers the HTTP API",
        )
        self.authorizer = Function(
            self,
            "Authorizer",
            module="authorizer",
            package=package,
            timeout=Duration.seconds(10),
            memory_mb=512,
            description="Turns a bearer token into a tenant and scopes",
        )
        self.log_group = logs.LogGroup(
            self, "AccessLogs", retention=package.log_retention, removal_policy=RemovalPolicy.DESTROY
        )
        self.http = gateway.HttpApi(self, "Http", create_default_stage=False, description="Fanfold")
        self.stage = gateway.HttpStage(
            self,
            "Stage",
            http_api=self.http,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=_AccessLog(self.log_group),
        )
        integration = integrations.HttpLambdaIntegration("Integration", self.function.function)
        self.http.add_routes(
            path="/v1/{proxy+}",
            methods=[gateway.HttpMethod.ANY],
            integration=integration,
            authorizer=authorizers.HttpLambdaAuthorizer(
                "Tokens",
                self.authorizer.function,
                response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
                identity_source=["$request.header.Authorization"],
                results_cache_ttl=AUTHORIZER_CACHE,
            ),
        )
        for path in OPEN_ROUTES:
            self.http.add_routes(
                path=path,
                methods=[gateway.HttpMethod.GET],
                integration=integration,
                authorizer=gateway.HttpNoneAuthorizer(),
            )

    @property
    def url(self) -> str:
        """The base URL, ending in a slash; paths of the API are relative to it."""
        return self.stage.url
