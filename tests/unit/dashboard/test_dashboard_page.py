"""A dashboard's body is read as CloudWatch means it, and its widgets are filled line by line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanfold.dashboard import data, page
from fanfold.dashboard.data import Span
from fanfold.dashboard.figures import blocks, short
from fanfold.dashboard.formula import FormulaError
from fanfold.dashboard.page import Metric, PageError, with_period
from fanfold.dashboard.series import Series

BEGIN = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SPAN = Span(begin=BEGIN, end=BEGIN + timedelta(minutes=3))


def body(*widgets: dict[str, Any], **given: Any) -> str:
    return json.dumps({"widgets": list(widgets), **given})


def graph(*rows: list[Any], **properties: Any) -> dict[str, Any]:
    return {"type": "metric", "x": 0, "y": 0, "width": 6, "height": 6, "properties": {"metrics": rows, **properties}}


def metric(name: str, *dimensions: tuple[str, str], stat: str = "Sum", period: int = 60) -> Metric:
    return Metric(namespace="F", name=name, dimensions=dimensions, statistic=stat, period_seconds=period)


def test_rows_are_metrics_with_what_the_widget_says_unless_they_say_otherwise() -> None:
    read = page.read(
        body(
            graph(
                ["F", "A", "class", "model", "lane", "low"],
                [".", "B", ".", "harness", ".", ".", {"stat": "p95", "period": 300}],
                ["...", "high"],
                ["F", "C"],
                stat="Sum",
                period=60,
            )
        )
    )
    assert list(read.metrics) == [
        metric("A", ("class", "model"), ("lane", "low")),
        metric("B", ("class", "harness"), ("lane", "low"), stat="p95", period=300),
        metric("B", ("class", "harness"), ("lane", "high")),
        metric("C"),
    ]


def test_the_page_has_its_grid_texts_marks_axes_and_alarms_from_top_to_bottom() -> None:
    text = {"type": "text", "x": 0, "y": 8, "width": 24, "height": 2, "properties": {"markdown": "# Why"}}
    alarms = {
        "type": "alarm",
        "x": 0,
        "y": 4,
        "width": 12,
        "height": 3,
        "properties": {"title": "A", "alarms": ["arn"]},
    }
    marked = graph(
        ["F", "A", {"yAxis": "right", "color": "#123456", "label": "all"}],
        title="T",
        stacked=True,
        annotations={"horizontal": [{"value": 5, "label": "target"}, [{"value": 1}, {"value": 2}]], "alarms": ["arn2"]},
        yAxis={"left": {"min": 0, "max": 9, "label": "s"}},
    )
    read = page.read(body(text, alarms, marked, start="-PT12H"))
    first, second, third = read.widgets
    assert read.hours == 12
    assert (first.title, first.stacked, [mark.value for mark in first.marks]) == ("T", True, [5, 1, 2])
    assert (first.marks[0].label, first.alarms, first.left.label, first.left.most) == ("target", ["arn2"], "s", 9)
    assert (first.lines[0].right, first.lines[0].color, first.lines[0].label) == (True, "#123456", "all")
    assert (second.kind, second.alarms, third.markdown) == ("alarm", ["arn"], "# Why")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"widgets": [{}]}', '{"widgets": 1}', body(graph(["F"])), body(graph(["F", "A", "odd"]))]
)
def test_what_is_no_dashboard_is_said_to_be_none(text: str) -> None:
    with pytest.raises(PageError, match="none that can be shown"):
        page.read(text)


def filled(*rows: list[Any], series: dict[str, Series], **properties: Any) -> data.Filled:
    read = page.read(body(graph(*rows, stat="Sum", period=60, **properties)))
    by_metric = {one: series[one.name] for one in read.metrics}
    return data.filled(read.widgets[0], by_metric, SPAN)


def test_expressions_are_evaluated_on_metrics_and_on_each_other_in_whatever_order_they_stand() -> None:
    found = filled(
        [{"expression": "e2 * 2", "id": "e1", "label": "twice"}],
        [{"expression": "SUM(METRICS())", "id": "e2", "label": "all"}],
        ["F", "A", {"id": "m1", "visible": False}],
        ["F", "B", {"id": "m2"}],
        series={"A": (1, None, 3), "B": (10, None, None)},
    )
    assert found.problems == []
    assert [(c.label, c.series) for c in found.curves] == [
        ("twice", (22, None, 6)),
        ("all", (11, None, 3)),
        ("B", (10, None, None)),
    ]


def test_what_can_not_be_evaluated_is_told_and_the_other_lines_are_there() -> None:
    found = filled(
        [{"expression": "SEARCH('x', 'Sum')", "id": "e1", "label": "searched"}],
        [{"expression": "m1 +", "id": "e2", "label": "half"}],
        [{"expression": "m1 + slow", "id": "e3", "label": "mixed"}],
        ["F", "A", {"id": "m1"}],
        ["F", "S", {"id": "slow", "period": 300}],
        series={"A": (1, 2, 3), "S": (1,)},
    )
    assert [c.label for c in found.curves] == ["A", "S"]
    searched, half, mixed = found.problems
    assert "SEARCH is no function known here" in searched
    assert "the end" in half
    assert "'slow'" in mixed  # five minutes are not slots of one


def test_expressions_in_a_circle_are_told() -> None:
    found = filled(
        [{"expression": "b + 1", "id": "a"}], [{"expression": "a + 1", "id": "b"}], ["F", "A"], series={"A": (1, 2, 3)}
    )
    assert ("need each other" in found.problems[0], [c.label for c in found.curves]) == (True, ["A"])
    with pytest.raises(FormulaError, match="a, b"):
        page.in_order(
            page.read(body(graph([{"expression": "b", "id": "a"}], [{"expression": "a", "id": "b"}]))).widgets[0].lines
        )


def test_an_expression_that_gives_several_series_is_several_lines() -> None:
    found = filled(
        [{"expression": "METRICS() / 2", "label": "half"}],
        ["F", "A"],
        ["F", "B"],
        series={"A": (2,) * 3, "B": (4,) * 3},
    )
    assert [(c.label, c.series[0]) for c in found.curves] == [("half 1", 1), ("half 2", 2), ("A", 2), ("B", 4)]


def test_another_period_is_everybodys_and_what_was_true_of_its_own_is_gone() -> None:
    marks = {"horizontal": [{"value": 1}]}
    axes = {"left": {"label": "in 5 min"}}
    counts = graph(["F", "A", {"stat": "Sum"}], annotations=marks, yAxis=axes)
    mixed = graph(["F", "A", {"id": "m"}], [{"expression": "1 * m", "id": "e"}], yAxis=axes)
    first, second = with_period(page.read(body(counts, mixed)), 60).widgets
    assert ([line.period_seconds for line in second.lines], list(first.marks)) == ([60, 60], [])
    assert (first.left.label, second.left.label) == ("in 60 s", "in 5 min")
    assert first.lines[0].metric is not None
    assert first.lines[0].metric.period_seconds == 60


def test_a_span_has_whole_periods() -> None:
    odd = Span(begin=BEGIN + timedelta(seconds=10), end=BEGIN + timedelta(seconds=190))
    assert odd.slots(60) == 4
    assert odd.times(60)[0] == BEGIN
    assert data.span(page.read(body(start="-P1D")), now=BEGIN, hours=None).begin == BEGIN - timedelta(days=1)
    assert data.span(page.read(body()), now=BEGIN, hours=0.5).begin == BEGIN - timedelta(minutes=30)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (12.5, "12.5"),
        (1234.4, "1234"),
        (56_700, "56.7k"),
        (2.1e6, "2.1M"),
        (-3e9, "-3G"),
        (5.2e-5, "5.2e-05"),
    ],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert short(value) == shown


def test_a_series_is_a_row_of_blocks_with_its_gaps() -> None:
    assert blocks((0, None, 7, 3.5), 10) == "▁ █▅"
    assert blocks((1, 9, None, None, 2, 2), 3) == "█ ▃"
    assert blocks((5, 5), 10) == "██"
    assert blocks((0, 0), 10) == "▁▁"
    assert blocks((None, None), 10) == ""
