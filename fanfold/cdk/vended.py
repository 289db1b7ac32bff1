"""Log groups of AWS services."""

from __future__ import annotations

from aws_cdk import Names, RemovalPolicy, Stack
from aws_cdk import aws_logs as logs
from constructs import Construct

from fanfold.cdk.function import Package


def vended_log_group(scope: Construct, name: str, *, of: str, package: Package) -> logs.LogGroup:
    """A log group for a service (`of`), under the prefix for which AWS needs no resource policy.

    An account's resource policy has 5,120 characters, enough for about ten other groups (CloudWatch Logs, vended logs).
    A name with this prefix can't be generated, so it has the stack's name and a hash of the construct's path.
    """
    unique = Names.unique_resource_name(scope, max_length=60)
    return logs.LogGroup(
        scope,
        name,
        log_group_name=f"/aws/vendedlogs/{of}/{Stack.of(scope).stack_name}-{unique}",
        retention=package.log_retention,
        removal_policy=RemovalPolicy.DESTROY,
    )
