"""The integration tests in an emulator that somebody else started: `make test-localstack ENDPOINT=…`.

Tests start and stop nothing there, deploy into it once, and take away again what they made.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from localstack_client.session import Session

from fanfold.local import cdk_app, emulator
from fanfold.local.local_stack import LocalStack

ENDPOINT = os.environ.get("FANFOLD_TEST_ENDPOINT", "").rstrip("/")
"""The emulator's URL; empty where the tests start their own."""

API = os.environ.get("FANFOLD_TEST_API") or "http"
"""The flavour of the API that the shared stack has."""

DELETE_SECONDS = 300


def session(endpoint: str) -> Any:
    """A `localstack-client` session for an emulator: dummy credentials, and every client at its endpoint."""
    with pytest.MonkeyPatch.context() as patch:
        # It would win over the endpoint that is meant.
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        host = urlsplit(endpoint).netloc
        return Session(aws_access_key_id="test", aws_secret_access_key="test", localstack_host=host)


def be_sure_of(endpoint: str) -> None:
    """Ends the session with a sentence where no emulator answers: else every test would wait for it, and fail."""
    if not emulator.answers(endpoint):
        pytest.exit(f"No AWS emulator answers at {endpoint}.", returncode=2)


def refuse_to_share(endpoint: str) -> None:
    """Ends the session where no emulator answers, or where the stack is there already: tests would delete it."""
    be_sure_of(endpoint)
    cloudformation = session(endpoint).client("cloudformation")
    try:
        found = cloudformation.describe_stacks(StackName=cdk_app.STACK)["Stacks"]
    except ClientError:
        return  # "does not exist" is an error
    finally:
        cloudformation.close()
    if any(stack["StackStatus"] != "DELETE_COMPLETE" for stack in found):
        said = f"{endpoint} has a stack {cdk_app.STACK} already: delete it first, or name another endpoint."
        pytest.exit(said, returncode=2)


def take_away(stack: LocalStack) -> None:
    """Delete the stack and what is in it; what `cdk bootstrap` made stays."""
    aws = session(stack.endpoint)
    s3, cloudformation = aws.client("s3"), aws.client("cloudformation")
    try:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=stack.bucket):
            for found in page.get("Contents", []):
                s3.delete_object(Bucket=stack.bucket, Key=found["Key"])
        cloudformation.delete_stack(StackName=stack.stack)
        cloudformation.get_waiter("stack_delete_complete").wait(
            StackName=stack.stack, WaiterConfig={"Delay": 1, "MaxAttempts": DELETE_SECONDS}
        )
    finally:
        s3.close()
        cloudformation.close()
