"""What AWS's failures become: each says whether the call was carried out, was not, or may have been."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from fanfold.adapters.aws.calls import Refused, short_code, translate, translated
from fanfold.engine.errors import Conflict, FanfoldError, Throttled, Unanswered, Unavailable

URL = "http://127.0.0.1:1/"


def client_error(code: str, status: int = 400, **more: object) -> ClientError:
    """A service's answer with an error in it."""
    response = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(response, "PutItem")  # type: ignore[arg-type]  # only what is read of it


def test_a_failed_condition_carries_the_item_that_stands() -> None:
    item = {"pk": {"S": "acme#r1"}}
    error = translate(client_error("ConditionalCheckFailedException", Item=item))
    assert isinstance(error, Conflict)
    assert error.current == item


def test_a_failed_condition_on_nothing_carries_nothing() -> None:
    error = translate(client_error("ConditionalCheckFailedException"))
    assert isinstance(error, Conflict)
    assert error.current is None


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("ThrottlingException", 400),
        ("RequestLimitExceeded", 400),
        ("RequestThrottled", 403),
        ("AWS.SimpleQueueService.OverLimit", 403),
        ("SlowDown", 503),
        ("TooManyRequestsException", 429),
        ("TooManyRequests", 429),
        ("KMS.ThrottlingException", 400),
        ("KmsThrottlingException", 400),
        ("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceeded", 400),
    ],
)
def test_a_refusal_for_load_was_definitely_not_carried_out(code: str, status: int) -> None:
    assert type(translate(client_error(code, status))) is Throttled


@pytest.mark.parametrize(
    "error",
    [
        client_error("InternalServerError", 500),
        client_error("ServiceUnavailable", 503),
        client_error("", 502),
        ReadTimeoutError(endpoint_url=URL),
        ConnectionClosedError(endpoint_url=URL),
        IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ResponseParserError("half a JSON"),
    ],
)
def test_a_failure_after_sending_leaves_it_open(error: Exception) -> None:
    assert type(translate(error)) is Unanswered


@pytest.mark.parametrize(
    "error",
    [ConnectTimeoutError(endpoint_url=URL), EndpointConnectionError(endpoint_url=URL), NoCredentialsError()],
)
def test_a_failure_before_sending_was_definitely_not_carried_out(error: Exception) -> None:
    assert type(translate(error)) is Unavailable


SPELLINGS = [
    # SQS's two protocols (API reference, `awsQueryError` of each error), and what LocalStack makes of one of them.
    ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
    ("QueueNameExists", "QueueAlreadyExists"),
    ("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"),
    ("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation"),
    ("BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong"),
    ("TooManyEntriesInBatchRequest", "com.amazonaws.sqs#TooManyEntriesInBatchRequest"),
    ("InvalidParameterValue", "InvalidParameterValueException"),
    # The others have one protocol each, but not every emulator's code comes from their models.
    ("ExecutionAlreadyExists", "ExecutionAlreadyExistsException"),
    ("ValidationException", "Validation"),
    ("NoSuchKey", "NoSuchKeyException"),
    ("ConditionalCheckFailedException", "ConditionalCheckFailed"),
]


@pytest.mark.parametrize(("code", "other"), SPELLINGS)
def test_every_spelling_of_a_code_is_the_same_code(code: str, other: str) -> None:
    assert short_code(code) == short_code(other)
    for said, meant in ((code, other), (other, code)):
        refused = Refused(said, "words")
        assert refused.says(meant)
        assert not refused.says("SomethingElse")


@pytest.mark.parametrize("code", ["ConditionalCheckFailed", "com.amazonaws.dynamodb#ConditionalCheckFailedException"])
def test_a_failed_condition_is_one_in_every_spelling(code: str) -> None:
    assert isinstance(translate(client_error(code)), Conflict)


def test_codes_that_are_near_each_other_stay_apart() -> None:
    codes = ["InvalidParameterValue", "InvalidParameter", "ResourceNotFound", "NotFound", "ExecutionDoesNotExist"]
    assert len({short_code(code) for code in codes}) == len(codes)


def test_any_other_refusal_keeps_its_code() -> None:
    error = translate(client_error("AWS.SimpleQueueService.NonExistentQueue"))
    assert isinstance(error, Refused)
    assert error.code == "QueueDoesNotExist"


@pytest.mark.parametrize("error", [ParamValidationError(report="a bug"), KeyError("a bug")])
def test_a_mistake_of_our_own_is_not_dressed_up(error: Exception) -> None:
    assert translate(error) is None
    with pytest.raises(type(error)), translated():
        raise error


def test_the_foreign_error_stays_as_the_cause() -> None:
    cause = client_error("AccessDeniedException")
    with pytest.raises(FanfoldError) as raised, translated():
        raise cause
    assert raised.value.__cause__ is cause
