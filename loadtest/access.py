"""How to reach the services of a local stack by their own API, beside the product."""

from __future__ import annotations

import os

import boto3

from fanfold.local import aws_access
from fanfold.local.local_stack import LocalStack


def session_of(stack: LocalStack) -> boto3.Session:
    """A session with the stack's credentials and region."""
    return aws_access.session_of(stack.environment(os.environ))


def endpoint_of(stack: LocalStack) -> str:
    """Where the stack's services are."""
    return stack.environment(os.environ)["AWS_ENDPOINT_URL"]
