"""A page's data: GetMetricData gives its metrics and evaluates its expressions, a call for each widget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fanfold.dashboard.figures import Series
from fanfold.dashboard.page import Line, Page, Widget

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

SLOTS = 1440
"""The most points of a series: more can't be told apart, and a call returns 100,800."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that is shown."""

    begin: datetime
    end: datetime

    def slots(self, period_seconds: int) -> int:
        """The number of periods; the first and the last may be partial."""
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
    """One series of a widget with its line. An expression may give several curves."""

    line: Line
    label: str
    series: Series

    @property
    def values(self) -> list[float]:
        """The values that exist, oldest first."""
        return [value for value in self.series if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A widget with its curves. `problems` says which lines have no value, and why."""

    widget: Widget
    curves: Sequence[Curve]
    problems: Sequence[str] = ()


def span(page: Page, *, now: datetime, hours: float | None) -> Span:
    """The last hours before `now`; by default as many as the page says."""
    return Span(begin=now - timedelta(hours=page.hours if hours is None else hours), end=now)


def fetch(cloudwatch: CloudWatchClient, lines: Sequence[Line], when: Span) -> Mapping[str, Sequence[Curve]]:
    """CloudWatch's values of each line, by its id. Raises boto3's errors.

    A call takes at most 500 queries, so a widget has at most 500 lines. The call begins at a whole period, because
    CloudWatch counts periods from the beginning of the call.
    """
    by_id = {line.id: line for line in lines}
    longest = max((line.period_seconds for line in lines), default=1)
    found: dict[tuple[str, str], dict[int, float]] = {}
    for answer in cloudwatch.get_paginator("get_metric_data").paginate(
        MetricDataQueries=[_query(line) for line in lines],
        StartTime=datetime.fromtimestamp(when.first(longest) * longest, UTC),
        EndTime=datetime.fromtimestamp(when.last(longest) * longest, UTC),
        ScanBy="TimestampAscending",
    ):
        for result in answer["MetricDataResults"]:
            # An expression with several series gives each its own label.
            points = found.setdefault((result["Id"], result["Label"]), {})
            period = by_id[result["Id"]].period_seconds
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                points[int(at.timestamp() // period)] = float(value)
    curves: dict[str, list[Curve]] = {line.id: [] for line in lines}
    for (id_, label), points in found.items():
        line = by_id[id_]
        slots = range(when.first(line.period_seconds), when.last(line.period_seconds))
        curves[id_].append(Curve(line=line, label=label, series=[points.get(slot) for slot in slots]))
    return curves


def _query(line: Line) -> Any:
    if line.metric is None:
        return {"Id": line.id, "Label": line.label, "Expression": line.expression, "Period": line.period_seconds}
    dimensions = [{"Name": name, "Value": value} for name, value in line.metric.dimensions]
    return {
        "Id": line.id,
        "Label": line.label,
        "MetricStat": {
            "Metric": {"Namespace": line.metric.namespace, "MetricName": line.metric.name, "Dimensions": dimensions},
            "Period": line.period_seconds,
            "Stat": line.metric.statistic,
        },
    }


def filled(cloudwatch: CloudWatchClient, widget: Widget, when: Span) -> Filled:
    """One widget with its curves. Raises boto3's errors, except CloudWatch's errors about the widget's own queries."""
    from botocore.exceptions import ClientError

    if not widget.lines:
        return Filled(widget=widget, curves=())
    try:
        curves = fetch(cloudwatch, widget.lines, when)
    except ClientError as error:
        told = error.response.get("Error", {})
        if told.get("Code") not in ("ValidationError", "InvalidParameterValue"):
            raise
        return Filled(widget=widget, curves=(), problems=[str(told.get("Message", told["Code"]))])
    shown = [line for line in widget.lines if line.visible]
    there = {id_ for id_, several in curves.items() if any(curve.values for curve in several)}
    expressions = [line for line in shown if line.metric is None]
    problems = []
    if there and expressions and not any(line.id in there for line in expressions):
        # An emulator has metrics but no metric math, so the inputs of an expression are shown.
        problems = [f"not computed here: {', '.join(line.label for line in expressions)}"]
        shown = [line for line in widget.lines if line.metric is not None]
    return Filled(widget=widget, curves=[curve for line in shown for curve in curves[line.id]], problems=problems)
