"""The API: three functions behind an HTTP API or a REST API, and its access log."""

from __future__ import annotations

from aws_cdk import Duration
from constructs import Construct

from fanfold.cdk.api_gateway import ApiGateway
from fanfold.cdk.config import Config
from fanfold.cdk.function import Function, Package
from fanfold.cdk.http_api import HttpGateway
from fanfold.cdk.rest_api import RestGateway
from fanfold.cdk.vended import vended_log_group

TIMEOUTS = {"http": Duration.seconds(29), "rest": Duration.seconds(28)}
"""Less than the 30 s (HTTP API) or 29 s (REST API) of API Gateway, so that our own answer comes first."""

WATCH_MB = 512
"""Half of the API's memory: calls that wait pay for idle memory. It passes on values of 50 MB at most, unparsed."""


class Api(Construct):
    """Exposes `url` (ending in a slash), the three functions, and the `gateway` in front of them."""

    def __init__(self, scope: Construct, name: str, *, config: Config, package: Package) -> None:
        super().__init__(scope, name)
        self.function = Function(
            self,
            "Api",
            module="api",
            package=package,
            timeout=TIMEOUTS[config.api],
            memory_mb=1_024,
            description="Answers the HTTP API",
            reserved_concurrency=config.reserved.get("api"),
        )
        self.watch = Function(
            self,
            "Watch",
            module="watch",
            package=package,
            timeout=TIMEOUTS[config.api],
            memory_mb=WATCH_MB,
            description="Shows runs and their events, and waits for them",
            reserved_concurrency=config.reserved.get("watch"),
        )
        self.authorizer = Function(
            self,
            "Authorizer",
            module="authorizer",
            package=package,
            timeout=Duration.seconds(10),
            memory_mb=512,
            description="Turns a bearer token into a tenant and scopes",
            reserved_concurrency=config.reserved.get("authorizer"),
        )
        self.log_group = vended_log_group(self, "AccessLogs", of="apis", package=package)
        self.gateway = self._gateway(config)

    @property
    def url(self) -> str:
        """The base URL, ending in a slash; paths of the API are relative to it."""
        return self.gateway.url

    def _gateway(self, config: Config) -> ApiGateway:
        if config.api == "rest":
            return RestGateway(
                self,
                function=self.function,
                watch=self.watch,
                authorizer=self.authorizer,
                log_group=self.log_group,
                requests_per_second=config.requests_per_second,
                burst=config.burst,
                emulated=config.local,
            )
        return HttpGateway(
            self,
            function=self.function,
            watch=self.watch,
            authorizer=self.authorizer,
            log_group=self.log_group,
            requests_per_second=config.requests_per_second,
            burst=config.burst,
        )
