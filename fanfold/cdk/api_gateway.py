"""What HTTP API and REST API have in common: routes, metrics, and how long an authorizer's answer is cached."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as http
from aws_cdk import aws_cloudwatch as cloudwatch

from fanfold.cdk.metrics import PERIOD

AUTHORIZER_CACHE = Duration.minutes(5)
"""A revoked token works this much longer at most."""
PROXIED_ROUTE = "/v1/{proxy+}"
"""The path behind the authorizer, for all methods."""
OPEN_ROUTES = ("/v1/health", "/openapi.json", "/docs")
"""Routes without the authorizer."""
STREAM_ROUTE = "/v1/stream/{ticket}"
"""A further route without the authorizer: the handler checks the stream's ticket. The watch function answers it."""
WATCHED_ROUTES = ("/v1/runs/{id}", "/v1/runs/{id}/events")
"""GET routes that can wait. They go to the watch function, behind the authorizer."""


class ApiGateway:
    """An API in API Gateway and its metrics. `url` ends in a slash."""

    api: http.HttpApi | rest.RestApi
    url: str
    api_id: str

    @property
    def errors(self) -> Sequence[cloudwatch.Metric]:
        """Answers of 500 and more, and of 400 and more."""
        return [
            self.api.metric_server_error(period=PERIOD, statistic="Sum", label="500 and more"),
            self.api.metric_client_error(period=PERIOD, statistic="Sum", label="400 and more"),
        ]

    @property
    def failures(self) -> cloudwatch.Metric:
        """Answers of 500 and more, without a label, for an alarm."""
        return self.api.metric_server_error(period=PERIOD, statistic="Sum")

    @property
    def requests(self) -> cloudwatch.Metric:
        """The number of requests."""
        return self.api.metric_count(period=PERIOD, statistic="Sum", label="requests")

    def latency(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds from a request's arrival to its answer, as a percentile (`p50`, …)."""
        return self.api.metric_latency(period=PERIOD, statistic=statistic, label=statistic)
