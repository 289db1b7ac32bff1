"""The workers of a class: a function, a mapping for each lane, and one for `resume` with one message at a time."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda_event_sources as sources
from constructs import Construct

from fanfold.cdk.classes import ClassConfig
from fanfold.cdk.function import Function, Package
from fanfold.cdk.queues import Queues


class Worker(Construct):
    """Receives the messages of a class. Without `mappings` worker processes do."""

    def __init__(
        self, scope: Construct, name: str, *, config: ClassConfig, queues: Queues, package: Package, mappings: bool
    ) -> None:
        super().__init__(scope, name)
        self.function = Function(
            self,
            "Worker",
            module="worker",
            package=package,
            timeout=Duration.seconds(config.timeout_seconds),
            memory_mb=config.memory_mb,
            description="Claims runs and executes their steps",
            in_queue_loop=True,
            reserved_concurrency=config.reserved_concurrency,
        )
        for lane, queue in queues.lanes.items():
            self.function.live.add_event_source(
                sources.SqsEventSource(
                    queue,
                    batch_size=config.batch_size,
                    max_concurrency=config.lanes[lane],
                    report_batch_item_failures=True,
                    enabled=mappings,
                )
            )
        self.function.live.add_event_source(
            sources.SqsEventSource(
                queues.resume,
                batch_size=1,  # suspects run alone, so that none harms another run (R7)
                max_concurrency=config.resume,
                report_batch_item_failures=True,
                enabled=mappings,
            )
        )
