"""Which stack a command means, how it gets at AWS, and what it says when it can't: the same for all commands."""

from __future__ import annotations

from collections.abc import Mapping

import boto3
from botocore.exceptions import BotoCoreError, ConnectionError, HTTPClientError, NoCredentialsError, NoRegionError

from fanfold.local.local_stack import LocalError, LocalStack


def session_of(environ: Mapping[str, str]) -> boto3.Session:
    """A session with the credentials and the region of an environment.

    What is not in it is found as AWS tools find it: profile, role and region of the configuration.
    """
    return boto3.Session(
        aws_access_key_id=environ.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=environ.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=environ.get("AWS_SESSION_TOKEN"),
        region_name=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"),
    )


def stack_of(
    stack_name: str | None, local_stack: LocalStack | None, environ: Mapping[str, str], *, what: str
) -> tuple[str, Mapping[str, str], LocalStack | None]:
    """The stack of that name, `local` or None for the local one: its name, its environment, and itself if it is local.

    Raises `LocalError` (usage), asking for `what`, when there is no local one.
    """
    if stack_name in (None, "local") and local_stack is None:
        raise LocalError(f"Which {what}? Name a deployed stack with --stack, or start a local one.", status=2)
    if local_stack is not None and stack_name in (None, "local", local_stack.stack):
        return local_stack.stack, local_stack.environment(environ), local_stack
    return str(stack_name), environ, None


def unasked(error: BotoCoreError, *, status: int = 4) -> LocalError:
    """One sentence about a boto3 error, with the variable to set."""
    match error:
        case NoCredentialsError():
            said = "There are no AWS credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        case NoRegionError():
            said = "There is no AWS region: set AWS_REGION"
        case HTTPClientError() | ConnectionError():
            said = f"AWS is not reachable: {' '.join(str(error).split()).rstrip('.')}"
        case _:
            said = f"AWS can't be asked: {' '.join(str(error).split()).rstrip('.')}"
    return LocalError(f"{said}.", status=status)
