"""What both flavours of the API's front door have in common: routes, and how long a token's verdict is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

AUTHORIZER_CACHE = Duration.minutes(5)
"""A revoked token works this much longer at most (design.md, section 7)."""
PROXIED_ROUTE = "/v1/{proxy+}"
"""Behind the authorizer, whatever the method."""
OPEN_ROUTES = ("/v1/health", "/openapi.json", "/docs", "/v1/stream/{ticket}")
"""Routes without the authorizer. A stream's ticket is its authorization: the handler checks it."""


class Door(Protocol):
    """An API of API Gateway, either flavour."""

    @property
    def url(self) -> str:
        """The base URL, ending in a slash; paths of the API are relative to it."""
        ...

    @property
    def api_id(self) -> str:
        """The id API Gateway knows it by."""
        ...

    @property
    def errors(self) -> Sequence[cloudwatch.Metric]:
        """Answers of 500 and more, and of 400 and more."""
        ...

    @property
    def failures(self) -> cloudwatch.Metric:
        """Answers of 500 and more, for an alarm: without a label."""
        ...

    @property
    def requests(self) -> cloudwatch.Metric:
        """How many requests there were."""
        ...

    def latency(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds from a request's arrival to its answer, as a percentile (`p50`, …)."""
        ...
