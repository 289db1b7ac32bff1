"""The sweeper function and its schedule (R14)."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from fanfold.cdk.function import Function, Package

EVERY = Duration.minutes(1)
TIMEOUT = Duration.seconds(55)
"""Less than a minute, so that a pass ends before the next one begins."""


class Sweeper(Construct):
    """A function that runs once a minute. A failed pass is not repeated; the next pass does its work."""

    def __init__(self, scope: Construct, name: str, *, package: Package) -> None:
        super().__init__(scope, name)
        self.function = Function(
            self,
            "Sweeper",
            module="sweeper",
            package=package,
            timeout=TIMEOUT,
            memory_mb=512,
            description="Sends wakes for due runs, ends expired runs",
        )
        self.function.live.configure_async_invoke(retry_attempts=0, max_event_age=Duration.seconds(60))
        self.rule = events.Rule(
            self,
            "EveryMinute",
            schedule=events.Schedule.rate(EVERY),
            targets=[targets.LambdaFunction(self.function.live, retry_attempts=0, max_event_age=EVERY)],
        )
