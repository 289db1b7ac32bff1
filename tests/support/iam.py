"""A small IAM: which statement of a role's policies allows a call, as AWS judges it. What it does not know is an error.

Calls of boto3 are turned into what IAM is asked: an action, a resource, and the context that conditions look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanfold.adapters.aws.run_items import DUE_INDEX, DUE_PK, LIST_INDEX, LIST_PK, PK

ACCOUNT, REGION = "123456789012", "us-east-1"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What IAM is asked: may this be done to that? `context` has a list of values for each condition key."""

    action: str
    resource: str
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        told = f" {dict(self.context)}" if self.context else ""
        return f"{self.action} on {self.resource}{told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a policy, its references resolved to ARNs."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Any]]

    def covers(self, request: Request) -> bool:
        """Whether it speaks about this request."""
        return (
            any(_like(request.action.lower(), action.lower()) for action in self.actions)
            and any(_like(request.resource, resource) for resource in self.resources)
            and all(_holds(kind, key, wanted, request) for kind, key, wanted in self._conditions())
        )

    def _conditions(self) -> Iterator[tuple[str, str, list[str]]]:
        for kind, keys in self.conditions.items():
            for key, wanted in keys.items():
                yield kind, key, _listed(wanted)


def allowed(request: Request, statements: Sequence[Statement]) -> bool:
    """Whether one allows it and none denies it."""
    covering = [statement for statement in statements if statement.covers(request)]
    return {statement.effect for statement in covering} == {"Allow"}


def _holds(kind: str, key: str, wanted: Sequence[str], request: Request) -> bool:
    """A condition, as IAM's reference of condition operators has it."""
    given = request.context.get(key)
    match kind:
        case "StringEquals":
            return given is not None and any(value in wanted for value in given)
        case "StringLike":
            return given is not None and any(_like(value, pattern) for value in given for pattern in wanted)
        case "ForAllValues:StringLike":
            # True as well where the request has no such key at all.
            return all(any(_like(value, pattern) for pattern in wanted) for value in given or ())
    raise AssertionError(f"this IAM does not know the operator {kind}")


def _like(value: str, pattern: str) -> bool:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


# --- what a template grants -----------------------------------------------------------------------


def policies_of(template: Json, role: str, resolve: Any) -> list[Statement]:
    """The statements of every policy that a template attaches to a role; `resolve` gives a value as text."""
    return [
        Statement(
            effect=statement["Effect"],
            actions=tuple(_listed(statement["Action"])),
            resources=tuple(resolve(resource) for resource in _listed(statement["Resource"])),
            conditions={
                kind: {key: [resolve(value) for value in _listed(values)] for key, values in keys.items()}
                for kind, keys in statement.get("Condition", {}).items()
            },
        )
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::IAM::Policy" and {"Ref": role} in resource["Properties"]["Roles"]
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
    ]


# --- what a call asks -----------------------------------------------------------------------------

TABLE_ACTIONS = frozenset({"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query"})
INDEX_KEYS = {LIST_INDEX: LIST_PK, DUE_INDEX: DUE_PK}
QUEUE_ACTIONS = {
    "SendMessage": "SendMessage",
    "SendMessageBatch": "SendMessage",
    "ReceiveMessage": "ReceiveMessage",
    "DeleteMessage": "DeleteMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibility": "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "GetQueueAttributes": "GetQueueAttributes",
}
"""A batch is judged as what it is a batch of (Service Authorization Reference, SQS)."""
KEY_USES = {
    "dynamodb": ("kms:Decrypt",),
    "sqs:SendMessage": ("kms:GenerateDataKey", "kms:Decrypt"),
    "sqs:ReceiveMessage": ("kms:Decrypt",),
    "s3:PutObject": ("kms:GenerateDataKey",),
    "s3:GetObject": ("kms:Decrypt",),
}
"""What a customer managed key has to allow for a call (each service's page on encryption at rest)."""


def requests_of(service: str, operation: str, parameters: Json) -> list[Request]:
    """What IAM is asked for a call. An operation that is not known here is an error: nobody judged it."""
    match service:
        case "dynamodb":
            return list(_table(operation, parameters))
        case "sqs":
            queue = parameters["QueueUrl"].rpartition("/")[2]
            action = f"sqs:{QUEUE_ACTIONS[operation]}"
            return [Request(action=action, resource=f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}")]
        case "s3":
            assert operation in ("GetObject", "PutObject"), operation
            return [
                Request(action=f"s3:{operation}", resource=f"arn:aws:s3:::{parameters['Bucket']}/{parameters['Key']}")
            ]
        case "stepfunctions":
            assert operation in ("StartExecution", "DescribeExecution", "StopExecution"), operation
            resource = parameters.get("executionArn") or parameters["stateMachineArn"]
            return [Request(action=f"states:{operation}", resource=resource)]
    raise AssertionError(f"nobody knows what IAM is asked for {service}:{operation}")


def of_key(request: Request, key: str) -> list[Request]:
    """What the key of an encrypted deployment is asked for besides."""
    service = request.action.split(":")[0]
    uses = KEY_USES.get(request.action, KEY_USES.get(service, ()))
    context = {"kms:ViaService": [f"{service}.{REGION}.amazonaws.com"]}
    return [Request(action=use, resource=key, context=context) for use in uses]


def when_missing(parameters: Json) -> Request:
    """What S3 asks for before it tells that an object is gone; without it a missing object is a denial."""
    return Request(action="s3:ListBucket", resource=f"arn:aws:s3:::{parameters['Bucket']}")


def _table(operation: str, parameters: Json) -> Iterator[Request]:
    if operation == "BatchGetItem":
        for table, asked in parameters["RequestItems"].items():
            yield _on_table("BatchGetItem", table, [key[PK]["S"] for key in asked["Keys"]])
        return
    assert operation in TABLE_ACTIONS, operation
    index = parameters.get("IndexName")
    match operation:
        case "PutItem":
            keys = [parameters["Item"][PK]["S"]]
        case "Query":
            keys = [_partition(parameters, INDEX_KEYS[index] if index else PK)]
        case _:
            keys = [parameters["Key"][PK]["S"]]
    yield _on_table(operation, parameters["TableName"], keys, index=index)


def _on_table(operation: str, table: str, keys: Sequence[str], *, index: str | None = None) -> Request:
    resource = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}" + (f"/index/{index}" if index else "")
    return Request(action=f"dynamodb:{operation}", resource=resource, context={"dynamodb:LeadingKeys": keys})


def _partition(parameters: Json, attribute: str) -> str:
    """The partition a query is about: the value its condition compares the key with."""
    names = parameters.get("ExpressionAttributeNames", {})
    for left, right in re.findall(r"([#\w]+) = (:\w+)", parameters["KeyConditionExpression"]):
        if names.get(left, left) == attribute:
            value: str = parameters["ExpressionAttributeValues"][right]["S"]
            return value
    raise AssertionError(f"a query without its key: {parameters}")
