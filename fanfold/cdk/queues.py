"""The queues of a class: one for each lane, `resume` for runs that have begun, `dead` for dead letters."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Fn, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from fanfold.cdk.config import DEAD_RETENTION_DAYS, MAX_RECEIVES, SOURCE_RETENTION_DAYS
from fanfold.engine.record.messages import DEAD, RESUME


class Queues(Construct):
    """One class's queues by role.

    `visibility` of the sources is the worker function's timeout (a mapping refuses less, R5); `dead_visibility`
    the dead-letter function's.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        lanes: tuple[str, ...],
        visibility: Duration,
        dead_visibility: Duration,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, name)
        self._key = key
        self._encryption = sqs.QueueEncryption.SQS_MANAGED if key is None else sqs.QueueEncryption.KMS
        self.dead = sqs.Queue(
            self,
            "Dead",
            retention_period=Duration.days(DEAD_RETENTION_DAYS),
            visibility_timeout=dead_visibility,
            encryption=self._encryption,
            encryption_master_key=key,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.lanes = {lane: self._source(f"{lane.capitalize()}Lane", visibility) for lane in lanes}
        # EventBridge rules send here; their permission is in a policy of its own.
        self.resume = self._source("Resume", visibility, enforce_ssl=True)
        self._take_tls_only(self.dead, *self.lanes.values())

    @property
    def sources(self) -> Mapping[str, sqs.Queue]:
        """The queues from which a worker receives, by role."""
        return {**self.lanes, RESUME: self.resume}

    @property
    def urls(self) -> Mapping[str, str]:
        """Every queue's URL by role, for `ClassSettings.queues`."""
        return {role: queue.queue_url for role, queue in {**self.sources, DEAD: self.dead}.items()}

    @property
    def names(self) -> Mapping[str, str]:
        """Every queue's name by role, lanes first."""
        return {role: queue.queue_name for role, queue in {**self.sources, DEAD: self.dead}.items()}

    @property
    def at(self) -> str:
        """The common prefix of the URLs of all queues of the account, slash included."""
        parts = Fn.split("/", self.dead.queue_url)  # https:, nothing, the host, the account, the name
        return Fn.join("/", [*(Fn.select(number, parts) for number in range(4)), ""])

    def _take_tls_only(self, *queues: sqs.Queue) -> None:
        """One policy for all of them: a stack has at most 500 resources, and a class has many queues."""
        policy = sqs.QueuePolicy(self, "Tls", queues=list(queues))
        policy.document.add_statements(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["sqs:*"],
                resources=[queue.queue_arn for queue in queues],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            )
        )

    def _source(self, name: str, visibility: Duration, *, enforce_ssl: bool = False) -> sqs.Queue:
        return sqs.Queue(
            self,
            name,
            retention_period=Duration.days(SOURCE_RETENTION_DAYS),
            visibility_timeout=visibility,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead, max_receive_count=MAX_RECEIVES),
            encryption=self._encryption,
            encryption_master_key=self._key,
            enforce_ssl=enforce_ssl,
            removal_policy=RemovalPolicy.DESTROY,
        )
