"""What AWS takes, in USD, on demand, in us-east-1, on arm64; one row for each thing that a run uses.

What the dashboard knows too comes from `fanfold.cdk.prices`. Free tiers, volume discounts and tax are in no figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fanfold.cdk import prices as aws

DATE: Final = "November 2026"
"""When the price pages said so."""


class Part(StrEnum):
    """Something that is paid for; its value is how it is called in a table."""

    API = "API Gateway"
    INVOCATIONS = "Lambda, requests"
    COMPUTE = "Lambda, GB-s"
    WRITES = "DynamoDB, writes"
    INDEX_WRITES = "DynamoDB, index writes"
    READS = "DynamoDB, reads"
    TABLE_STORAGE = "DynamoDB, storage"
    QUEUE = "SQS, requests"
    FAIRNESS = "SQS, fair queues"
    LOGS = "CloudWatch, logs"
    BUCKET_WRITES = "S3, writes"
    BUCKET_READS = "S3, reads"
    TRANSITIONS = "Step Functions, transitions"
    EXPRESS = "Step Functions Express, requests"
    EXPRESS_COMPUTE = "Step Functions Express, GB-s"
    OPERATIONS = "Lambda durable functions, operations"
    DURABLE_WRITTEN = "Lambda durable functions, GB written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD for one unit, and which unit that is."""

    dollars: float
    unit: str


PRICES: Final[Mapping[Part, Price]] = {
    Part.API: Price(dollars=aws.API_REQUEST["http"], unit="request of an HTTP API, 512 KB"),
    Part.INVOCATIONS: Price(dollars=aws.INVOCATION, unit="invocation"),
    Part.COMPUTE: Price(dollars=aws.GB_SECOND["arm64"], unit="GB and second"),
    Part.WRITES: Price(dollars=aws.WRITE_UNIT, unit="write unit, 1 KB"),
    Part.INDEX_WRITES: Price(dollars=aws.WRITE_UNIT, unit="write unit, 1 KB"),
    Part.READS: Price(dollars=aws.READ_UNIT, unit="read unit, 4 KB"),
    Part.TABLE_STORAGE: Price(dollars=0.25, unit="GB and month"),
    Part.QUEUE: Price(dollars=aws.QUEUE_REQUEST, unit="request, 64 KB"),
    Part.FAIRNESS: Price(dollars=0.10 / aws.MILLION, unit="message sent with a group"),
    Part.LOGS: Price(dollars=0.50, unit="GB written"),
    Part.BUCKET_WRITES: Price(dollars=aws.BUCKET_WRITE, unit="PUT"),
    Part.BUCKET_READS: Price(dollars=aws.BUCKET_READ, unit="GET"),
    Part.TRANSITIONS: Price(dollars=25.0 / aws.MILLION, unit="state transition"),
    Part.EXPRESS: Price(dollars=1.0 / aws.MILLION, unit="request"),
    Part.EXPRESS_COMPUTE: Price(dollars=0.00001667, unit="GB and second, in 64 MB and 100 ms"),
    Part.OPERATIONS: Price(dollars=8.0 / aws.MILLION, unit="operation"),
    Part.DURABLE_WRITTEN: Price(dollars=0.25, unit="GB written"),
}
