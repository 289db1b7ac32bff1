"""How to reach the services of a local stack by their own API, beside the product."""

from __future__ import annotations

import os

import boto3

from fanfold.local.local_stack import LocalStack


def session_of(stack: LocalStack) -> boto3.Session:
    """A session with the stack's credentials and region."""
    environ = stack.environment(os.environ)
    return boto3.Session(
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name=environ["AWS_REGION"],
    )


def endpoint_of(stack: LocalStack) -> str:
    """Where the stack's services are."""
    return stack.environment(os.environ)["AWS_ENDPOINT_URL"]
