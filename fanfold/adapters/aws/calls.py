"""How the adapters ask AWS: one call signature, and the one place where a foreign error becomes one of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, Protocol

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
    ProxyConnectionError,
)
from botocore.parsers import ResponseParserError

from fanfold.engine.errors import Conflict, FanfoldError, Throttled, Unanswered, Unavailable


class Client(StrEnum):
    """The clients there are: a service, and whether the SDK may repeat a call by itself.

    It may where a repetition changes nothing. It may not (`…_ONCE`) where a repetition would count
    twice (slots), fail against its own first try (conditional puts), or turn "perhaps done" into
    "refused" (sends).
    """

    DYNAMODB = "dynamodb"
    DYNAMODB_ONCE = "dynamodb-once"
    SQS = "sqs"
    SQS_ONCE = "sqs-once"
    SQS_RECEIVE = "sqs-receive"  # waits up to 20 s for an answer, in threads of its own
    S3 = "s3"
    STEP_FUNCTIONS = "stepfunctions"


class Call(Protocol):
    """Carries out one operation of one client and answers its response; a streamed `Body` arrives read.

    Raises what `translate` makes of a failure. `fanfold.service.aws_clients.Aws` is one.
    """

    async def __call__(
        self, client: Client, operation: str, /, *, in_time: Callable[[], bool] | None = None, **parameters: Any
    ) -> Any:
        """Call the client's method of that name (`put_item`, …).

        `in_time` is asked in the calling thread, last before the call; if it says no, `Unavailable` is raised instead.
        """


_RENAMED: Final = {"NonExistentQueue": "QueueDoesNotExist", "QueueAlreadyExists": "QueueNameExists"}
"""SQS's codes that are other words in its query protocol than in its JSON."""


def short_code(code: str) -> str:
    """The one spelling of a service's code: services, their protocols and emulators spell the same code differently.

    Without what is put before it (`AWS.SimpleQueueService.` in SQS's query protocol, `com.amazonaws.sqs#` in JSON),
    without `Exception` at its end (AWS's SQS says `InvalidParameterValue`, LocalStack's says
    `InvalidParameterValueException`), and by its newer name where it has two.
    """
    word = code.rpartition("#")[2].rpartition(".")[2].removesuffix("Exception")
    return _RENAMED.get(word, word)


def short_codes(*codes: str) -> frozenset[str]:
    """Codes in the one spelling, to look a short code up in."""
    return frozenset(map(short_code, codes))


class Refused(Unavailable):
    """The service said no; `code` is its stable word for why, in the spelling of `short_code`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = short_code(code)

    def says(self, *codes: str) -> bool:
        """Whether it is one of these codes, in whatever spelling."""
        return self.code in short_codes(*codes)


CONDITION_FAILED: Final = short_code("ConditionalCheckFailedException")

THROTTLES: Final = short_codes(
    "BandwidthLimitExceeded",
    "KmsThrottled",
    "KmsThrottlingException",
    "LimitExceededException",
    "OverLimit",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottledException",
    "ThrottlingException",
    "TooManyRequestsException",
)
"""The services' codes for "too much at the moment": the call was refused before anything was done."""

_NEVER_ASKED: Final = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
_NO_ANSWER: Final = (HTTPClientError, IncompleteReadError, ResponseParserError)


def translate(error: Exception) -> FanfoldError | None:
    """Our error for one of botocore's; None for what is a mistake of the caller's code and must fly as it is.

    A failed condition becomes `Conflict`, whose `current` is the raw item that stands, if the call
    asked for it (`ReturnValuesOnConditionCheckFailure`).
    """
    match error:
        case ClientError():
            code = short_code(str(error.response.get("Error", {}).get("Code", "")))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code == CONDITION_FAILED:
                return Conflict(error.response.get("Item"))
            if code in THROTTLES:
                return Throttled(str(error))
            if status >= 500:
                return Unanswered(str(error))
            return Refused(code, str(error))
        case ParamValidationError():
            return None
        case _ if isinstance(error, _NEVER_ASKED):
            return Unavailable(str(error))
        case _ if isinstance(error, _NO_ANSWER):
            return Unanswered(str(error))
        case BotoCoreError():  # no credentials, no region, an unknown profile: never sent
            return Unavailable(str(error))
        case _:
            return None


@contextmanager
def translated() -> Iterator[None]:
    """Raises our error in place of botocore's, which becomes its cause."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error
