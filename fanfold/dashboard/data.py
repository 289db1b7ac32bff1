"""A page's data: GetMetricData for its metrics, and its expressions evaluated on what came."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fanfold.dashboard.evaluate import Given, evaluate
from fanfold.dashboard.formula import FormulaError
from fanfold.dashboard.page import Line, Metric, Page, Widget, in_order
from fanfold.dashboard.series import Series

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

QUERIES = 500
"""Metrics in one GetMetricData (the API's limit)."""

SLOTS = 1440
"""Points of one series at most: more than that nobody can tell apart, and a call gives 100,800."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that is shown: whole periods of each length lie in it."""

    begin: datetime
    end: datetime

    def slots(self, period_seconds: int) -> int:
        """How many periods there are, the first and the last perhaps in part."""
        return self.last(period_seconds) - self.first(period_seconds)

    def first(self, period_seconds: int) -> int:
        """The number of the first period, counted since 1970."""
        return int(self.begin.timestamp() // period_seconds)

    def last(self, period_seconds: int) -> int:
        """The number of the period after the last one."""
        return int(-(-self.end.timestamp() // period_seconds))

    def times(self, period_seconds: int) -> list[datetime]:
        """When each period begins."""
        numbers = range(self.first(period_seconds), self.last(period_seconds))
        return [datetime.fromtimestamp(number * period_seconds, UTC) for number in numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One series of a widget, with its line; of an expression that gives several, each is a curve."""

    line: Line
    label: str
    series: Series
    period_seconds: int

    @property
    def values(self) -> list[float]:
        """What there is, oldest first."""
        return [value for value in self.series if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A widget with its visible curves; `problems` says of each expression without a value why it has none."""

    widget: Widget
    curves: Sequence[Curve]
    problems: Sequence[str] = ()

    @property
    def of_aws(self) -> bool:
        """Whether all its metrics are AWS's own, which an emulator publishes few of."""
        metrics = [line.metric for line in self.widget.lines if line.metric is not None]
        return bool(metrics) and all(metric.namespace.startswith("AWS/") for metric in metrics)


def span(page: Page, *, now: datetime, hours: float | None) -> Span:
    """The last hours before `now`; as many as the page says if none are asked for."""
    return Span(begin=now - timedelta(hours=page.hours if hours is None else hours), end=now)


def fetch(cloudwatch: CloudWatchClient, metrics: Sequence[Metric], when: Span) -> Mapping[Metric, Series]:
    """The series of each metric. boto3's errors fly.

    The calls begin at a whole period: CloudWatch would else count periods from wherever the call begins.
    """
    longest = max((metric.period_seconds for metric in metrics), default=1)
    found: dict[Metric, dict[int, float]] = {metric: {} for metric in metrics}
    numbered = list(enumerate(metrics))
    for start in range(0, len(numbered), QUERIES):
        asked = {f"q{number}": metric for number, metric in numbered[start : start + QUERIES]}
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[_query(id_, metric) for id_, metric in asked.items()],
            StartTime=datetime.fromtimestamp(when.first(longest) * longest, UTC),
            EndTime=datetime.fromtimestamp(when.last(longest) * longest, UTC),
            ScanBy="TimestampAscending",
        )
        for result in (result for page in pages for result in page["MetricDataResults"]):
            metric = asked[result["Id"]]
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                found[metric][int(at.timestamp() // metric.period_seconds)] = float(value)
    return {
        metric: tuple(
            points.get(number) for number in range(when.first(metric.period_seconds), when.last(metric.period_seconds))
        )
        for metric, points in found.items()
    }


def _query(id_: str, metric: Metric) -> Any:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
    return {
        "Id": id_,
        "MetricStat": {
            "Metric": {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions},
            "Period": metric.period_seconds,
            "Stat": metric.statistic,
        },
    }


def fill(page: Page, series: Mapping[Metric, Series], when: Span) -> Sequence[Filled]:
    """Every widget with its curves."""
    return [filled(widget, series, when) for widget in page.widgets]


def filled(widget: Widget, series: Mapping[Metric, Series], when: Span) -> Filled:
    """One widget with its curves: its metrics, and its expressions evaluated here."""
    known: dict[str, Series] = {}
    curves: dict[str, list[Curve]] = {}
    problems: list[str] = []
    try:
        lines = in_order(widget.lines)
    except FormulaError as error:
        lines = [line for line in widget.lines if line.metric is not None]
        problems.append(str(error))
    for line in lines:
        try:
            several = [series[line.metric]] if line.metric is not None else _evaluated(line, widget, known, when)
        except FormulaError as error:
            problems.append(f"{line.label}: {error}")
            continue
        if len(several) == 1:
            known[line.id] = several[0]
        curves[line.id] = [
            Curve(line=line, label=label, series=one, period_seconds=line.period_seconds)
            for one, label in zip(several, _labels(line.label, len(several)), strict=True)
        ]
    shown = itertools.chain.from_iterable(curves.get(line.id, ()) for line in widget.lines if line.visible)
    return Filled(widget=widget, curves=list(shown), problems=problems)


def _labels(label: str, count: int) -> Sequence[str]:
    return [label] if count == 1 else [f"{label} {number}" for number in range(1, count + 1)]


def _evaluated(line: Line, widget: Widget, known: Mapping[str, Series], when: Span) -> Sequence[Series]:
    if line.formula is None:
        raise FormulaError(line.problem)
    periods = {other.id: other.period_seconds for other in widget.lines}
    # Series of other periods can't be told slot by slot; of the page's other lines METRICS() means those it can.
    fitting = {id_: one for id_, one in known.items() if periods[id_] == line.period_seconds}
    given = Given(
        series=fitting,
        metrics=[other.id for other in widget.lines if other.metric is not None and other.id in fitting],
        period_seconds=line.period_seconds,
        slots=when.slots(line.period_seconds),
    )
    return evaluate(line.formula, given)
