"""What both flavours of the API's front gateway have in common: routes, metrics, how long a token's verdict is kept."""

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
"""Behind the authorizer, whatever the method."""
OPEN_ROUTES = ("/v1/health", "/openapi.json", "/docs")
"""Routes without the authorizer."""
STREAM_ROUTE = "/v1/stream/{ticket}"
"""Another: a stream's ticket is its authorization, and the handler checks it. The watch function answers it."""
WATCHED_ROUTES = ("/v1/runs/{id}", "/v1/runs/{id}/events")
"""What can be waited for: a GET of these goes to the watch function, behind the authorizer."""


class ApiGateway:
    """An API of API Gateway, made by either flavour, and its metrics. `url` ends in a slash."""

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
        """Answers of 500 and more, for an alarm: without a label."""
        return self.api.metric_server_error(period=PERIOD, statistic="Sum")

    @property
    def requests(self) -> cloudwatch.Metric:
        """How many requests there were."""
        return self.api.metric_count(period=PERIOD, statistic="Sum", label="requests")

    def latency(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds from a request's arrival to its answer, as a percentile (`p50`, …)."""
        return self.api.metric_latency(period=PERIOD, statistic=statistic, label=statistic)
