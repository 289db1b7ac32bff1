"""The dashboard: one page, five questions in the order in which an operator asks them (`fanfold.cdk.dashboard`)."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from fanfold.cdk.api_gateway import ApiGateway
from fanfold.cdk.config import Config
from fanfold.cdk.dashboard import availability, cost, latency, risk, throughput
from fanfold.cdk.dashboard.inputs import Facts
from fanfold.cdk.function import Function
from fanfold.cdk.queues import Queues

QUESTIONS = (availability, throughput, latency, cost, risk)


class Dashboard(Construct):
    """The dashboard and its five rows."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        functions: Mapping[str, Function],
        queues: Mapping[str, Queues],
        gateway: ApiGateway,
        config: Config,
    ) -> None:
        super().__init__(scope, name)
        facts = Facts(config=config, functions=functions, queues=queues, gateway=gateway)
        page = cloudwatch.Dashboard(
            self,
            "Page",
            default_interval=Duration.hours(3),
            # Otherwise CloudWatch uses longer periods for longer times, and counts are no longer per five minutes.
            period_override=cloudwatch.PeriodOverride.INHERIT,
        )
        for question in QUESTIONS:
            for row in question.rows(facts):
                page.add_widgets(*row)
