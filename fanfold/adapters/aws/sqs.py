"""The queues in SQS: standard queues with fairness groups, our own check of every limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from fanfold.adapters.aws.calls import THROTTLES, Call, Client, Refused, short_code, short_codes
from fanfold.adapters.message_codec import decode, encode, fairness_group
from fanfold.engine.errors import InfrastructureError, LimitExceeded, Throttled, Unanswered
from fanfold.engine.ports import NotSent, Outgoing, QueueDepth
from fanfold.engine.record.messages import Message, QueueName, Received

MAX_BATCH: Final = 10
MAX_BODY_BYTES: Final = 1_048_576
MAX_DELAY_SECONDS: Final = 900
MAX_VISIBILITY_SECONDS: Final = 43_200
MAX_WAIT_SECONDS: Final = 20
# SQS's own limits (Developer Guide, "Amazon SQS message quotas"); emulators accept more.

STALE: Final = short_codes("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue")
"""What SQS answers for a receipt that is no longer valid: the message went to another, or is gone.

`InvalidParameterValue` is also its word for a visibility beyond 12 hours from the receipt.
"""


class SqsQueue:
    """A `WorkQueue`; `urls` maps every queue in use to its URL. `call` carries out the calls (the `Aws` object).

    Unless it is `fair`, messages name no group: some emulators refuse one on a standard queue.
    A send is never repeated below this class, so an error other than `Unanswered` means: not sent.
    """

    def __init__(self, call: Call, urls: Mapping[QueueName, str], *, fair: bool = True) -> None:
        self._call = call
        self._urls = urls
        self._fair = fair

    async def send(self, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        """See `WorkQueue.send`."""
        entry = _entry(0, Outgoing(message=message, delay_seconds=delay_seconds), fair=self._fair)
        await self._call(Client.SQS_ONCE, "send_message", QueueUrl=self._urls[queue], **entry.parameters)

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        """See `WorkQueue.send_many`: up to ten messages and 1 MiB a call, the calls side by side."""
        outcomes: list[NotSent | None] = [None] * len(messages)
        entries: list[_Entry] = []
        for position, outgoing in enumerate(messages):
            try:
                entries.append(_entry(position, outgoing, fair=self._fair))
            except LimitExceeded as error:
                outcomes[position] = error
        answers = await asyncio.gather(*(self._send_batch(queue, batch) for batch in _batches(entries)))
        for answer in answers:
            for position, failure in answer.items():
                outcomes[position] = failure
        return outcomes

    async def receive(
        self, queue: QueueName, *, limit: int, wait_seconds: int, visibility_seconds: int
    ) -> Sequence[Received]:
        """See `WorkQueue.receive`. What a given-up wait still receives comes back after its visibility."""
        _check("sqs.receive_messages", limit, 1, MAX_BATCH)
        _check("sqs.wait_seconds", wait_seconds, 0, MAX_WAIT_SECONDS)
        _check("sqs.visibility_seconds", visibility_seconds, 0, MAX_VISIBILITY_SECONDS)
        response = await self._call(
            Client.SQS_RECEIVE,
            "receive_message",
            QueueUrl=self._urls[queue],
            MaxNumberOfMessages=limit,
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=visibility_seconds,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        return [
            received(
                queue,
                message_id=message["MessageId"],
                receipt=message["ReceiptHandle"],
                body=message["Body"],
                receives=int(message["Attributes"]["ApproximateReceiveCount"]),
            )
            for message in response.get("Messages", [])
        ]

    async def hide(self, messages: Sequence[Received], *, seconds: int) -> None:
        """See `WorkQueue.hide`."""
        _check("sqs.visibility_seconds", seconds, 0, MAX_VISIBILITY_SECONDS)
        await self._in_batches("change_message_visibility_batch", messages, VisibilityTimeout=seconds)

    async def delete(self, messages: Sequence[Received]) -> None:
        """See `WorkQueue.delete`."""
        await self._in_batches("delete_message_batch", messages)

    async def depth(self, queue: QueueName) -> QueueDepth:
        """See `WorkQueue.depth`."""
        response = await self._call(
            Client.SQS,
            "get_queue_attributes",
            QueueUrl=self._urls[queue],
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
                "ApproximateNumberOfMessagesDelayed",
            ],
        )
        attributes = response["Attributes"]
        return QueueDepth(
            visible=int(attributes["ApproximateNumberOfMessages"]),
            in_flight=int(attributes["ApproximateNumberOfMessagesNotVisible"]),
            delayed=int(attributes["ApproximateNumberOfMessagesDelayed"]),
        )

    async def _send_batch(self, queue: QueueName, batch: Sequence[_Entry]) -> Mapping[int, NotSent]:
        """One call; the messages that were not sent, or perhaps not, by their positions."""
        try:
            response = await self._call(
                Client.SQS_ONCE,
                "send_message_batch",
                QueueUrl=self._urls[queue],
                Entries=[{"Id": str(entry.position), **entry.parameters} for entry in batch],
            )
        except InfrastructureError as error:
            return {entry.position: error for entry in batch}
        failed = {str(failure["Id"]): _entry_error(failure) for failure in response.get("Failed", [])}
        sent = {str(entry["Id"]) for entry in response.get("Successful", [])}
        return {
            # An entry the answer does not name has not been answered.
            entry.position: failed.get(str(entry.position)) or Unanswered("the answer does not name this message")
            for entry in batch
            if str(entry.position) not in sent
        }

    async def _in_batches(self, operation: str, messages: Sequence[Received], **each: Any) -> None:
        by_queue: dict[QueueName, list[Received]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        answers = await asyncio.gather(
            *(
                self._batch(operation, queue, chunk, each)
                for queue, of_queue in by_queue.items()
                for chunk in _chunks(of_queue)
            ),
            return_exceptions=True,  # one chunk's failure must not leave another's in mid-air
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _batch(
        self, operation: str, queue: QueueName, messages: Sequence[Received], each: Mapping[str, Any]
    ) -> None:
        response = await self._call(
            Client.SQS,
            operation,
            QueueUrl=self._urls[queue],
            Entries=[
                {"Id": str(number), "ReceiptHandle": message.receipt, **each} for number, message in enumerate(messages)
            ],
        )
        for failure in response.get("Failed", []):
            if short_code(failure["Code"]) not in STALE:
                raise _entry_error(failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A message as SQS takes it: its position among those to be sent, the parameters, its body's size in bytes."""

    position: int
    parameters: Mapping[str, Any]
    bytes: int


def _entry(position: int, outgoing: Outgoing, *, fair: bool) -> _Entry:
    """The checked entry of a message. Raises `LimitExceeded`."""
    message, body = outgoing.message, encode(outgoing.message)
    _check("sqs.delay_seconds", outgoing.delay_seconds, 0, MAX_DELAY_SECONDS)
    _check("sqs.message_bytes", len(body), 1, MAX_BODY_BYTES)  # ASCII, so characters are bytes
    parameters: dict[str, Any] = {"MessageBody": body, "DelaySeconds": outgoing.delay_seconds}
    if fair:
        parameters["MessageGroupId"] = fairness_group(message.tenant)
    return _Entry(position=position, parameters=parameters, bytes=len(body))


def _batches(entries: Iterable[_Entry]) -> Iterator[Sequence[_Entry]]:
    """In order, as many as one call takes: ten, and together no more than one message may have."""
    batch: list[_Entry] = []
    for entry in entries:
        if len(batch) == MAX_BATCH or sum(other.bytes for other in batch) + entry.bytes > MAX_BODY_BYTES:
            yield batch
            batch = []
        batch.append(entry)
    if batch:
        yield batch


def received(queue: QueueName, *, message_id: str, receipt: str, body: str, receives: int) -> Received:
    """A delivery, by our own poll or by an event source mapping, with its body opened."""
    opened = decode(body)
    return Received(
        queue=queue,
        message_id=message_id,
        receipt=receipt,
        body=body,
        message=opened.message,
        newer=opened.newer,
        receives=receives,
    )


def _entry_error(failure: Mapping[str, Any]) -> InfrastructureError:
    code = short_code(failure["Code"])
    if code in THROTTLES:
        return Throttled(code)
    if not failure.get("SenderFault", False):
        return Unanswered(code)
    return Refused(code, str(failure.get("Message", "")))


def _chunks(messages: Sequence[Received]) -> Iterator[Sequence[Received]]:
    rest = iter(messages)
    while chunk := list(islice(rest, MAX_BATCH)):
        yield chunk


def _check(limit: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise LimitExceeded(limit, f"{value} is not within {least}–{most}")


def from_event(event: Mapping[str, Any], urls: Mapping[QueueName, str]) -> Sequence[Received]:
    """The deliveries of a Lambda invocation by an event source mapping.

    A record names its queue by ARN; `urls` are the queues in use. Raises KeyError for another's queue.
    """
    by_name = {url.rsplit("/", 1)[-1]: queue for queue, url in urls.items()}
    return [
        received(
            by_name[record["eventSourceARN"].rsplit(":", 1)[-1]],
            message_id=record["messageId"],
            receipt=record["receiptHandle"],
            body=record["body"],
            receives=int(record["attributes"]["ApproximateReceiveCount"]),
        )
        for record in event["Records"]
    ]
