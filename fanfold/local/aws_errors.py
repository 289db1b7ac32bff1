"""Error messages about AWS access, the same for all commands."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ConnectionError, HTTPClientError, NoCredentialsError, NoRegionError

from fanfold.local.local_stack import LocalError


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
