"""The HTTP API flavour: one proxied route behind the authorizer, and the routes open to everybody."""

from __future__ import annotations

import json
from collections.abc import Sequence

import jsii
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.door import AUTHORIZER_CACHE, OPEN_ROUTES, PROXIED_ROUTE
from infra.function import Function
from infra.metrics import PERIOD

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


class HttpDoor:
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
        self._api = gateway.HttpApi(scope, "Http", create_default_stage=False, description="Fanfold")
        self._stage = gateway.HttpStage(
            scope,
            "Stage",
            http_api=self._api,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=_AccessLog(log_group),
            throttle=gateway.ThrottleSettings(rate_limit=requests_per_second, burst_limit=burst),
        )
        integration = integrations.HttpLambdaIntegration("Integration", function.function)
        self._api.add_routes(
            path=PROXIED_ROUTE,
            methods=[gateway.HttpMethod.ANY],
            integration=integration,
            authorizer=authorizers.HttpLambdaAuthorizer(
                "Tokens",
                authorizer.function,
                response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
                identity_source=["$request.header.Authorization"],
                results_cache_ttl=AUTHORIZER_CACHE,
            ),
        )
        for path in OPEN_ROUTES:
            self._api.add_routes(
                path=path,
                methods=[gateway.HttpMethod.GET],
                integration=integration,
                authorizer=gateway.HttpNoneAuthorizer(),
            )

    @property
    def url(self) -> str:
        """The base URL, ending in a slash."""
        return self._stage.url

    @property
    def api_id(self) -> str:
        """The id API Gateway knows it by."""
        return self._api.api_id

    @property
    def errors(self) -> Sequence[cloudwatch.Metric]:
        """Answers of 500 and more, and of 400 and more."""
        return [
            self._api.metric_server_error(period=PERIOD, statistic="Sum", label="500 and more"),
            self._api.metric_client_error(period=PERIOD, statistic="Sum", label="400 and more"),
        ]

    @property
    def failures(self) -> cloudwatch.Metric:
        """Answers of 500 and more, for an alarm: without a label."""
        return self._api.metric_server_error(period=PERIOD, statistic="Sum")

    @property
    def requests(self) -> cloudwatch.Metric:
        """How many requests there were."""
        return self._api.metric_count(period=PERIOD, statistic="Sum", label="requests")

    def latency(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds from a request's arrival to its answer."""
        return self._api.metric_latency(period=PERIOD, statistic=statistic, label=statistic)
