"""A table, queues and a bucket for tests, as the CDK app would make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fanfold.adapters.aws.run_items import DUE_INDEX, DUE_PK, DUE_SK, LIST_INDEX, LIST_PK, LIST_SK, PK, SK, TTL
from fanfold.engine.record.messages import DEAD, RESUME, QueueName

ROLES = ("normal", RESUME, DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The names of what was made."""

    table: str
    bucket: str
    urls: Mapping[QueueName, str]


def create_stack(
    session: Any,
    endpoint_url: str | None = None,
    *,
    name: str = "fanfold-test",
    class_name: str = "model",
    max_receives: int = 10,
) -> Stack:
    """Make a table, a class's queues and a bucket, all named after `name`, through a boto3 session."""
    dynamodb = session.client("dynamodb", endpoint_url=endpoint_url)
    sqs = session.client("sqs", endpoint_url=endpoint_url)
    s3 = session.client("s3", endpoint_url=endpoint_url)
    try:
        _create_table(dynamodb, name)
        s3.create_bucket(Bucket=name)
        return Stack(table=name, bucket=name, urls=_create_queues(sqs, name, class_name, max_receives))
    finally:
        for client in (dynamodb, sqs, s3):
            client.close()


def delete_stack(session: Any, stack: Stack, endpoint_url: str | None = None) -> None:
    """Take away what `create_stack` made: an emulator may be somebody else's."""
    dynamodb = session.client("dynamodb", endpoint_url=endpoint_url)
    sqs = session.client("sqs", endpoint_url=endpoint_url)
    s3 = session.client("s3", endpoint_url=endpoint_url)
    try:
        for url in stack.urls.values():
            sqs.delete_queue(QueueUrl=url)
        dynamodb.delete_table(TableName=stack.table)
        for found in s3.list_objects_v2(Bucket=stack.bucket).get("Contents", []):
            s3.delete_object(Bucket=stack.bucket, Key=found["Key"])
        s3.delete_bucket(Bucket=stack.bucket)
    finally:
        for client in (dynamodb, sqs, s3):
            client.close()


def _create_table(dynamodb: Any, table: str) -> None:
    def key(partition: str, sort: str) -> list[dict[str, str]]:
        return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]

    def index(index_name: str, partition: str, sort: str) -> dict[str, Any]:
        return {
            "IndexName": index_name,
            "KeySchema": key(partition, sort),
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }

    types = {PK: "S", SK: "S", LIST_PK: "S", LIST_SK: "S", DUE_PK: "S", DUE_SK: "N"}
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=key(PK, SK),
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in types.items()],
        GlobalSecondaryIndexes=[index(LIST_INDEX, LIST_PK, LIST_SK), index(DUE_INDEX, DUE_PK, DUE_SK)],
    )
    dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification={"AttributeName": TTL, "Enabled": True})


def _create_queues(sqs: Any, name: str, class_name: str, max_receives: int) -> dict[QueueName, str]:
    urls: dict[QueueName, str] = {}
    attributes: dict[str, str] = {"MessageRetentionPeriod": str(14 * 86_400)}
    for role in reversed(ROLES):  # the dead-letter queue first: the others name it
        queue = QueueName(class_name=class_name, role=role)
        url = sqs.create_queue(QueueName=f"{name}-{class_name}-{role}", Attributes=attributes)["QueueUrl"]
        urls[queue] = url
        if role == DEAD:
            answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            redrive = {"deadLetterTargetArn": answer["Attributes"]["QueueArn"], "maxReceiveCount": max_receives}
            attributes = {"MessageRetentionPeriod": str(7 * 86_400), "RedrivePolicy": json.dumps(redrive)}
    return urls
