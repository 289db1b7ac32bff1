"""The customer managed key for table, bucket and queues, and who may use it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_kms as kms
from constructs import Construct

OWN = "true"
"""The value of the setting for a key that the stack creates. Otherwise it is a key's ARN, or empty."""
SERVICES = ("dynamodb", "s3", "sqs")
"""The services through which the key may be used."""
USE = (
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"),
    *("kms:ReEncryptFrom", "kms:ReEncryptTo"),
)
"""Permissions that DynamoDB needs from callers of a table with a customer managed key; the others need fewer."""
_ARN = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+")


def key_of(value: Any) -> str:
    """The setting `kms` as the context gives it: true, false, nothing, or a key's ARN. Raises ValueError.

    An alias is refused: permissions name keys.
    """
    match value:
        case None | False | "" | "false":
            return ""
        case True | "true":
            return OWN
        case str() if _ARN.fullmatch(value):
            return value
        case _:
            raise ValueError(f"kms: {value!r} is neither true, false nor the ARN of a key")


class Key(Construct):
    """A customer managed key: the stack's own, rotated each year, or one that exists (`given` is its ARN).

    The policy of one that exists is its owner's: it must let this account's roles use it (IAM policies), and
    EventBridge (`events.amazonaws.com`: `kms:Decrypt`, `kms:GenerateDataKey`), which sends to a queue.
    """

    def __init__(self, scope: Construct, name: str, *, given: str, disposable: bool) -> None:
        super().__init__(scope, name)
        self.key: kms.IKey = (
            kms.Key(
                self,
                "Key",
                description="Fanfold: table, payloads and queues",
                enable_key_rotation=True,
                removal_policy=RemovalPolicy.DESTROY if disposable else RemovalPolicy.RETAIN,
            )
            if given == OWN
            else kms.Key.from_key_arn(self, "Key", given)
        )

    @property
    def arn(self) -> str:
        """The key's ARN."""
        return self.key.key_arn

    @property
    def through(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """The condition that a use comes through one of the three services, in this region."""
        region = Stack.of(self).region
        return {"StringEquals": {"kms:ViaService": [f"{service}.{region}.amazonaws.com" for service in SERVICES]}}
