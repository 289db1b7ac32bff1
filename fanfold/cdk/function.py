"""A Lambda function with its own role and log group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from fanfold.cdk.bundling import RUNTIME

LIVE = "live"
"""The alias that all callers use. It changes code and settings in one step; Lambda changes `$LATEST` in two."""
ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "x86_64": lambda_.Architecture.X86_64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What all functions of a deployment share. `folder` is the project's folder, with its Dockerfile."""

    folder: Path
    code: lambda_.Code
    layers: Sequence[lambda_.ILayerVersion]
    environment: Mapping[str, str]
    architecture: str
    log_retention: logs.RetentionDays
    tracing: bool = False


class Function(Construct):
    """The function whose module is `functions.<module>`; it may write its logs and nothing else until granted.

    Callers use `live`, never `function`, whose code and settings change in two steps.

    `in_queue_loop`: the function receives messages that it has caused. Lambda would drop such messages silently after
    about 16 rounds (recursive loop detection). The run's record limits our rounds.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        module: str,
        package: Package,
        timeout: Duration,
        memory_mb: int,
        description: str,
        in_queue_loop: bool = False,
        reserved_concurrency: int | None = None,
    ) -> None:
        super().__init__(scope, name)
        self.in_queue_loop = in_queue_loop
        self.memory_mb = memory_mb
        self.log_group = logs.LogGroup(
            self, "Logs", retention=package.log_retention, removal_policy=RemovalPolicy.DESTROY
        )
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=f"Of {name}, alone"
        )
        self.log_group.grant_write(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            runtime=RUNTIME,
            architecture=ARCHITECTURES[package.architecture],
            handler=f"functions.{module}.handler",
            code=package.code,
            layers=list(package.layers),
            environment=dict(package.environment),
            timeout=timeout,
            memory_size=memory_mb,
            role=self.role,
            log_group=self.log_group,
            tracing=lambda_.Tracing.ACTIVE if package.tracing else lambda_.Tracing.DISABLED,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if in_queue_loop else lambda_.RecursiveLoop.TERMINATE,
            reserved_concurrent_executions=reserved_concurrency,
            # Old versions stay for rollbacks, and for invocations that still run in them.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
        )
        self.live = lambda_.Alias(self, "Live", alias_name=LIVE, version=self.function.current_version)

    def allow(
        self, actions: Sequence[str], *resources: str, conditions: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        """Let the function do these actions on exactly these resources, under these conditions if there are any."""
        self.role.add_to_policy(
            iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)
        )
