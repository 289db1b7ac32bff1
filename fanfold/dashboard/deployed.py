"""Finds a deployment's dashboard and alarms, local or in an account. Errors are one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from fanfold.dashboard import page
from fanfold.dashboard.page import Page, PageError
from fanfold.local.aws_access import session_of, stack_of, unasked
from fanfold.local.local_stack import LocalError, LocalStack

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricAlarmTypeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm; `what` is its description."""

    arn: str
    name: str
    state: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A deployment's page and alarms, and the client for its data."""

    stack_name: str
    page: Page
    dashboard_name: str
    alarm_names: Sequence[str]
    cloudwatch: CloudWatchClient

    def alarms(self) -> Sequence[Alarm]:
        """The stack's alarms with their states, by name."""
        found: list[Alarm] = []
        for start in range(0, len(self.alarm_names), 100):  # as many as DescribeAlarms takes
            names = list(self.alarm_names[start : start + 100])
            answer = self.cloudwatch.describe_alarms(AlarmNames=names, AlarmTypes=["MetricAlarm"], MaxRecords=100)
            found += [_alarm(told) for told in answer.get("MetricAlarms", ())]
        return sorted(found, key=lambda alarm: alarm.name)


def find(stack_name: str | None, local_stack: LocalStack | None, environ: Mapping[str, str]) -> Deployment:
    """The deployment of that name; without a name, or for `local`, the local one.

    Raises `LocalError` with one sentence if there is no deployment, no dashboard, or no credentials.
    """
    name, environ, _ = stack_of(stack_name, local_stack, environ, what="dashboard")
    with explained(name):
        return _found(session_of(environ), name, environ.get("AWS_ENDPOINT_URL") or None)


def _found(session: boto3.Session, stack_name: str, endpoint: str | None) -> Deployment:
    cloudformation = session.client("cloudformation", endpoint_url=endpoint)
    answers = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack_name)
    by_type: dict[str, list[str]] = {}
    for resource in (one for answer in answers for one in answer["StackResourceSummaries"]):
        by_type.setdefault(resource["ResourceType"], []).append(resource.get("PhysicalResourceId", ""))
    dashboards = [name for name in by_type.get("AWS::CloudWatch::Dashboard", ()) if name]
    if not dashboards:
        raise LocalError(
            f"Stack {stack_name!r} has no dashboard: it is no Fanfold deployment, or a part of one; deploy it again.",
            status=2,
        )
    cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
    body = cloudwatch.get_dashboard(DashboardName=dashboards[0])["DashboardBody"]
    try:
        read = page.read(body)
    except PageError as error:
        raise LocalError(f"Dashboard {dashboards[0]!r} can't be shown: {error}.", status=2) from error
    return Deployment(
        stack_name=stack_name,
        page=read,
        dashboard_name=dashboards[0],
        alarm_names=[name for name in by_type.get("AWS::CloudWatch::Alarm", ()) if name],
        cloudwatch=cloudwatch,
    )


@contextmanager
def explained(stack_name: str) -> Iterator[None]:
    """Turn boto3's errors into `LocalError` (exit status 2; 4 if AWS is not reachable)."""
    try:
        yield
    except (NoCredentialsError, NoRegionError) as error:
        raise unasked(error, status=2) from error
    except ClientError as error:
        told = error.response.get("Error", {})
        code, message = told.get("Code", ""), " ".join(str(told.get("Message", "")).split()).rstrip(".")
        if code == "ValidationError" and "does not exist" in message:
            said = f"There is no stack named {stack_name!r} in this account and region."
        elif code in ("ResourceNotFound", "DashboardNotFoundError"):
            said = f"The dashboard of stack {stack_name!r} is gone: deploy the stack again."
        else:
            said = f"AWS refused {error.operation_name}: {message or code}."
        raise LocalError(said, status=2) from error
    except BotoCoreError as error:
        raise unasked(error) from error


def _alarm(told: MetricAlarmTypeDef) -> Alarm:
    return Alarm(
        arn=told.get("AlarmArn", ""),
        name=told.get("AlarmName", ""),
        state=told.get("StateValue", ""),
        what=told.get("AlarmDescription", ""),
    )
