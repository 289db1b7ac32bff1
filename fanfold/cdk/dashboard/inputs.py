"""Inputs of the rows, and functions that create widgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs

from fanfold.cdk.api_gateway import ApiGateway
from fanfold.cdk.config import Config
from fanfold.cdk.function import Function
from fanfold.cdk.metrics import PERIOD, own
from fanfold.cdk.queues import Queues
from fanfold.service.telemetry.metrics import Metric

WIDTH = 24
"""Columns of a dashboard (CloudWatch)."""
HEIGHT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A deployment as its dashboard sees it. `config` has its classes and lanes."""

    config: Config
    functions: Mapping[str, Function]
    queues: Mapping[str, Queues]
    gateway: ApiGateway

    @property
    def classes(self) -> Sequence[str]:
        """The classes' names."""
        return tuple(self.config.classes)

    def sources(self, class_name: str) -> Iterator[tuple[str, sqs.Queue]]:
        """The queues from which a class's workers receive: its lanes and `resume`."""
        yield from self.queues[class_name].sources.items()

    def own(self, metric: Metric, *of: str, statistic: str = "Sum", label: str | None = None) -> cloudwatch.Metric:
        """One of our own series. Its label is its dimensions' values, else its name."""
        label = label or "/".join(of) or metric.value
        return own(metric, *of, service=self.config.stack_name, statistic=statistic, label=label)

    def by_class(self, metric: Metric) -> list[cloudwatch.Metric]:
        """A metric's series, one for each class."""
        return [self.own(metric, name, label=f"{name}: {metric.value}") for name in self.classes]

    def total(self, name: str, series: Sequence[cloudwatch.IMetric]) -> cloudwatch.MathExpression:
        """The sum of these series under this name. A series without data counts as 0."""
        names = [f"{name}{number}" for number in range(len(series))]
        return cloudwatch.MathExpression(
            expression=" + ".join(f"FILL({name}, 0)" for name in names),
            label=name,
            period=PERIOD,
            using_metrics=dict(zip(names, series, strict=True)),
        )


def graph(
    title: str,
    *metrics: cloudwatch.IMetric,
    width: int = 8,
    unit: str = "",
    stacked: bool = False,
    lines: Sequence[cloudwatch.HorizontalAnnotation] = (),
) -> cloudwatch.GraphWidget:
    """A graph that begins at zero. `unit` labels its axis; `lines` are horizontal lines."""
    return cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=cloudwatch.YAxisProps(min=0, label=unit or None, show_units=not unit),
        left_annotations=list(lines),
        stacked=stacked,
        width=width,
        height=HEIGHT,
    )


def text(title: str, *sentences: str, height: int = 2) -> cloudwatch.TextWidget:
    """The heading of a row: its question, and the meaning of its graphs."""
    return cloudwatch.TextWidget(markdown=f"## {title}\n{' '.join(sentences)}", width=WIDTH, height=height)
