"""The table of runs with its two indexes, and the bucket for large payloads."""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnElement, CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

EMPTYING = "Custom::S3AutoDeleteObjectsCustomResourceProvider"
"""CDK's id of the function that empties a bucket before it is deleted."""
LIST_INDEX = "list"
DUE_INDEX = "due"
TTL_ATTRIBUTE = "x"
RECOVERY_DAYS: Final = 35
"""Days of point-in-time recovery (DynamoDB). Overwritten and deleted payloads are kept as long, because a restored
table refers to them."""


class Table(Construct):
    """One pay-per-request table: keys `pk`, `sk`; index `list` finds runs, the sparse index `due` waiting ones.

    Without a `key` the service's own key encrypts it, which is free. `restored` names a table that DynamoDB restored:
    it is used instead, and the stack's own table stays unused.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        disposable: bool,
        backups: bool,
        key: kms.IKey | None = None,
        restored: str = "",
    ) -> None:
        super().__init__(scope, name)
        text = dynamodb.AttributeType.STRING
        own = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="pk", type=text),
            sort_key=dynamodb.Attribute(name="sk", type=text),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.DEFAULT if key is None else dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=key,
            time_to_live_attribute=TTL_ATTRIBUTE,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=backups
            ),
            deletion_protection=not disposable,
            removal_policy=RemovalPolicy.DESTROY if disposable else RemovalPolicy.RETAIN,
        )
        # Keys only: an index entry is a pointer, and the record itself is read strongly (R16).
        for index, partition, sort in (
            (LIST_INDEX, "lp", dynamodb.Attribute(name="ls", type=text)),
            (DUE_INDEX, "dp", dynamodb.Attribute(name="ds", type=dynamodb.AttributeType.NUMBER)),
        ):
            own.add_global_secondary_index(
                index_name=index,
                partition_key=dynamodb.Attribute(name=partition, type=text),
                sort_key=sort,
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            )
        self.table: dynamodb.ITable = dynamodb.Table.from_table_name(self, "Restored", restored) if restored else own

    @property
    def arn(self) -> str:
        """The table's ARN, without its indexes."""
        return self.table.table_arn

    def index_arn(self, index: str) -> str:
        """One index's ARN."""
        return f"{self.table.table_arn}/index/{index}"


class Bucket(Construct):
    """A private bucket, TLS only, whose objects expire by age alone (R15).

    Unless it is disposable, it keeps overwritten and deleted objects for as long as the table can be restored.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        disposable: bool,
        empty_on_delete: bool,
        expire_days: int,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, name)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED if key is None else s3.BucketEncryption.KMS,
            encryption_key=key,
            # One call to KMS for many objects instead of one for each.
            bucket_key_enabled=key is not None,
            enforce_ssl=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="lifetime",
                    expiration=Duration.days(expire_days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                    noncurrent_version_expiration=None if disposable else Duration.days(RECOVERY_DAYS),
                ),
                *([] if disposable else [s3.LifecycleRule(id="markers", expired_object_delete_marker=True)]),
            ],
            versioned=not disposable,
            removal_policy=RemovalPolicy.DESTROY if disposable else RemovalPolicy.RETAIN,
            auto_delete_objects=empty_on_delete,
        )
        if empty_on_delete:
            self._give_log()

    def _give_log(self) -> None:
        """Give CDK's function that empties the bucket a log group that expires; the default one is kept for ever."""
        provider = self.bucket.stack.node.find_child(EMPTYING)
        handler = provider.node.find_child("Handler")
        if not isinstance(handler, CfnResource):
            raise TypeError("the function that empties the bucket is no resource")
        group = logs.LogGroup(
            self, "EmptyingLogs", retention=logs.RetentionDays.ONE_WEEK, removal_policy=RemovalPolicy.DESTROY
        )
        handler.add_property_override("LoggingConfig", {"LogGroup": group.log_group_name})

    @property
    def logical_id(self) -> str:
        """The bucket's name in the template."""
        return self.bucket.stack.get_logical_id(_element(self.bucket))

    @property
    def arn(self) -> str:
        """The bucket's own ARN."""
        return self.bucket.bucket_arn

    @property
    def objects_arn(self) -> str:
        """The ARN of all objects in the bucket."""
        return self.bucket.arn_for_objects("*")


def _element(bucket: s3.Bucket) -> CfnElement:
    element = bucket.node.default_child
    if not isinstance(element, CfnElement):
        raise TypeError("the bucket has no template element")
    return element
