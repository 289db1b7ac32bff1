"""The function that sends lost envelopes again (R13)."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Duration
from aws_cdk import aws_lambda_event_sources as sources
from constructs import Construct

from fanfold.cdk.config import BATCH_SIZE
from fanfold.cdk.function import Function, Package
from fanfold.cdk.queues import Queues

TIMEOUT = Duration.seconds(60)
"""Seconds for ten messages of one read and one send each. Also the visibility timeout of the dead-letter queues."""


class DeadLetter(Construct):
    """Receives from every class's dead-letter queue, at most two batches at a time: it is never urgent."""

    def __init__(self, scope: Construct, name: str, *, queues: Iterable[Queues], package: Package) -> None:
        super().__init__(scope, name)
        self.function = Function(
            self,
            "DeadLetter",
            module="deadletter",
            package=package,
            timeout=TIMEOUT,
            memory_mb=512,
            description="Sends lost envelopes again",
            in_queue_loop=True,
        )
        for each in queues:
            self.function.live.add_event_source(
                sources.SqsEventSource(
                    each.dead, batch_size=BATCH_SIZE, max_concurrency=2, report_batch_item_failures=True
                )
            )
