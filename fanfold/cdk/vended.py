"""Log groups that services of AWS write into."""

from __future__ import annotations

from aws_cdk import Names, RemovalPolicy, Stack
from aws_cdk import aws_logs as logs
from constructs import Construct

from fanfold.cdk.function import Package


def vended_log_group(scope: Construct, name: str, *, of: str, package: Package) -> logs.LogGroup:
    """A log group for a service (`of`), under the one prefix for which AWS needs no policy for each group.

    That policy is one for all of an account's groups and has 5,120 characters: about ten other groups fill it
    (CloudWatch Logs, vended logs). The prefix needs a name of ours: the stack's, with a hash of the place in it.
    """
    unique = Names.unique_resource_name(scope, max_length=60)
    return logs.LogGroup(
        scope,
        name,
        log_group_name=f"/aws/vendedlogs/{of}/{Stack.of(scope).stack_name}-{unique}",
        retention=package.log_retention,
        removal_policy=RemovalPolicy.DESTROY,
    )
