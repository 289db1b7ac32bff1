"""Parses a dashboard's body: widgets on a grid of 24 columns.

The format is in the CloudWatch API reference, "Dashboard body structure and syntax".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

COLUMNS = 24
"""The grid's width; a row is as high as a column is wide."""

PERIOD_SECONDS = 300
"""The default period."""

STATISTIC = "Average"
"""The default statistic."""


class PageError(ValueError):
    """A malformed dashboard body; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric; `dimensions` in the page's order."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str
    period_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a widget: a metric or an expression, which may give several curves.

    A line that is not `visible` is an input of expressions.
    """

    id: str
    label: str
    metric: Metric | None = None
    expression: str = ""
    period_seconds: int
    visible: bool = True
    right: bool = False
    color: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A horizontal line at a value, such as an alarm's threshold; on the right axis if `right`."""

    value: float
    label: str = ""
    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Widget:
    """One element of the page: position and size in columns and rows, a title, and contents by `kind`.

    `text` is Markdown; `metric` has lines and shows them as `view` says (`timeSeries`, `singleValue`, …);
    `alarm` shows the states of `alarms`, by ARN. A metric widget may be about one alarm, too. `label` and `most` are
    of its left axis.
    """

    kind: str
    x: int
    y: int
    width: int
    height: int
    title: str = ""
    markdown: str = ""
    view: str = "timeSeries"
    stacked: bool = False
    lines: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    alarms: Sequence[str] = ()
    label: str = ""
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A dashboard: its widgets from top to bottom, and its default time."""

    widgets: Sequence[Widget]
    hours: float = 3.0


def with_period(page: Page, seconds: int) -> Page:
    """The page with another period for all its metrics.

    Horizontal lines and labels of count axes hold for the page's own period, and are left out.
    """

    def changed(line: Line) -> Line:
        metric = None if line.metric is None else replace(line.metric, period_seconds=seconds)
        return replace(line, metric=metric, period_seconds=seconds)

    def shown(widget: Widget) -> Widget:
        if not widget.lines:
            return widget
        counts = all(line.metric is not None and line.metric.statistic == "Sum" for line in widget.lines)
        label = f"in {seconds} s" if counts else widget.label
        return replace(widget, lines=[changed(line) for line in widget.lines], marks=(), label=label)

    return replace(page, widgets=[shown(widget) for widget in page.widgets])


def read(body: str) -> Page:
    """Parse a dashboard's body. Raises `PageError`."""
    try:
        told = json.loads(body)
        widgets = [_widget(widget) for widget in told["widgets"]]
        hours = _hours(str(told.get("start", "")))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise PageError(f"the dashboard's body is none that can be shown ({error!r})") from error
    return Page(widgets=sorted(widgets, key=lambda widget: (widget.y, widget.x)), hours=hours or 3.0)


def _hours(start: str) -> float:
    """`-PT3H`, `-P7D`, `-PT30M` in hours; 0 for anything else, which is an absolute time."""
    units = {"M": 1 / 60, "H": 1.0, "D": 24.0, "W": 168.0}
    number = start.removeprefix("-P").removeprefix("T")[:-1]
    return float(number) * units.get(start[-1], 0.0) if start.startswith("-P") and number.isdigit() else 0.0


def _widget(told: Mapping[str, Any]) -> Widget:
    properties = told.get("properties", {})
    kind = str(told["type"])
    stated_lines = list(_lines(properties)) if kind == "metric" else []
    left = (properties.get("yAxis") or {}).get("left") or {}
    annotations = properties.get("annotations") or {}
    return Widget(
        kind=kind,
        x=int(told.get("x", 0)),
        y=int(told.get("y", 0)),
        width=int(told.get("width", 6)),
        height=int(told.get("height", 6)),
        title=str(properties.get("title", "")),
        markdown=str(properties.get("markdown", "")),
        view=str(properties.get("view", "timeSeries")),
        stacked=bool(properties.get("stacked", False)),
        lines=stated_lines,
        marks=[_mark(mark) for mark in _flat(annotations.get("horizontal", ())) if "value" in mark],
        alarms=[str(arn) for arn in (*properties.get("alarms", ()), *annotations.get("alarms", ()))],
        label=str(left.get("label", "")),
        most=None if left.get("max") is None else float(left["max"]),
    )


def _flat(marks: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """All annotations; a band is a pair."""
    for mark in marks:
        yield from mark if isinstance(mark, list) else [mark]


def _mark(told: Mapping[str, Any]) -> Mark:
    return Mark(
        value=float(told["value"]),
        label=str(told.get("label", "")),
        right=told.get("yAxis") == "right",
    )


def _lines(properties: Mapping[str, Any]) -> Iterator[Line]:
    before: list[str] = []
    for number, row in enumerate(properties.get("metrics", ())):
        *words, options = row if isinstance(row[-1], dict) else [*row, {}]
        period = int(options.get("period", properties.get("period", PERIOD_SECONDS)))
        facts: dict[str, Any] = {
            "id": str(options.get("id", f"line{number}")),
            "visible": bool(options.get("visible", True)),
            "right": options.get("yAxis") == "right",
            "color": options.get("color"),
            "period_seconds": period,
        }
        if "expression" in options:
            text = str(options["expression"])
            yield Line(**facts, expression=text, label=str(options.get("label", text)))
            continue
        before = _spelled_out(words, before)
        namespace, name, *dimensions = before
        metric = Metric(
            namespace=namespace,
            name=name,
            dimensions=tuple(zip(dimensions[::2], dimensions[1::2], strict=True)),
            statistic=str(options.get("stat", properties.get("stat", STATISTIC))),
            period_seconds=period,
        )
        yield Line(**facts, metric=metric, label=str(options.get("label", name)))


def _spelled_out(words: Sequence[str], before: Sequence[str]) -> list[str]:
    """Expand a metric row: `.` repeats the word above it, and `...` repeats all words up to there."""
    if "..." in words:
        at = words.index("...")
        words = [*words[:at], *before[at : len(before) - (len(words) - at - 1)], *words[at + 1 :]]
    return [before[at] if word == "." else str(word) for at, word in enumerate(words)]
