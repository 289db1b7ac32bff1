"""A dashboard's body is read as CloudWatch means it, and its widgets are filled line by line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fanfold.dashboard import data, page
from fanfold.dashboard.data import Span
from fanfold.dashboard.figures import Series, blocks, short
from fanfold.dashboard.page import Metric, PageError, with_period
from tests.support.cloudwatch import CloudWatch

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
    assert [line.metric for line in read.widgets[0].lines] == [
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
    assert (first.marks[0].label, first.alarms, first.label, first.most) == ("target", ["arn2"], "s", 9)
    assert (first.lines[0].right, first.lines[0].color, first.lines[0].label) == (True, "#123456", "all")
    assert (second.kind, second.alarms, third.markdown) == ("alarm", ["arn"], "# Why")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"widgets": [{}]}', '{"widgets": 1}', body(graph(["F"])), body(graph(["F", "A", "odd"]))]
)
def test_what_is_no_dashboard_is_said_to_be_none(text: str) -> None:
    with pytest.raises(PageError, match="none that can be shown"):
        page.read(text)


def filled(*rows: list[Any], series: dict[str, Series | list[Series] | str], **properties: Any) -> data.Filled:
    read = page.read(body(graph(*rows, stat="Sum", period=60, **properties)))
    return data.filled(CloudWatch(series, BEGIN), read.widgets[0], SPAN)


def test_lines_have_what_cloudwatch_has_of_their_metrics_and_makes_of_their_expressions() -> None:
    found = filled(
        [{"expression": "m1 * 2", "id": "e1", "label": "twice"}],
        ["F", "A", {"id": "m1", "visible": False}],
        ["F", "B", {"id": "m2"}],
        ["F", "S", {"id": "slow", "period": 300}],
        series={"m1 * 2": (2, None, 6), "A": (1, None, 3), "B": (10, None, None), "S": (5,)},
    )
    assert found.problems == []
    assert [(c.label, c.series) for c in found.curves] == [
        ("twice", [2, None, 6]),
        ("B", [10, None, None]),
        ("S", [5]),
    ]


def test_an_expression_that_gives_several_series_is_several_lines() -> None:
    found = filled([{"expression": "SEARCH('x', 'Sum')", "label": "x"}], series={"SEARCH('x', 'Sum')": [(1,), (2,)]})
    assert [(c.label, c.series[0]) for c in found.curves] == [("x 1", 1), ("x 2", 2)]


def test_where_nobody_computes_an_expression_its_metrics_are_shown_and_that_is_told() -> None:
    found = filled(
        [{"expression": "m1 / m2", "label": "share"}],
        ["F", "A", {"id": "m1", "visible": False}],
        ["F", "B", {"id": "m2", "visible": False}],
        series={"m1 / m2": [], "A": (1, 2, 3), "B": ()},
    )
    assert ([c.label for c in found.curves], found.problems) == (["A", "B"], ["not computed here: share"])


def test_what_has_no_data_at_all_shows_no_hidden_line() -> None:
    found = filled(
        [{"expression": "m1 * 2", "label": "twice"}],
        ["F", "A", {"id": "m1", "visible": False}],
        series={"m1 * 2": (), "A": ()},
    )
    assert ([c.label for c in found.curves], found.problems) == (["twice"], [])


def test_what_cloudwatch_says_of_a_widgets_queries_is_told_on_the_widget_and_other_refusals_fly() -> None:
    rows = [[{"expression": "m1 +", "label": "half"}], ["F", "A", {"id": "m1"}]]
    found = filled(*rows, series={"m1 +": "ValidationError", "A": (1,)})
    assert (found.curves, found.problems) == ((), ["refused: m1 +"])
    with pytest.raises(ClientError, match="AccessDenied"):
        filled(*rows, series={"m1 +": "AccessDenied", "A": (1,)})


def test_another_period_is_everybodys_and_what_was_true_of_its_own_is_gone() -> None:
    marks = {"horizontal": [{"value": 1}]}
    axes = {"left": {"label": "in 5 min"}}
    counts = graph(["F", "A", {"stat": "Sum"}], annotations=marks, yAxis=axes)
    mixed = graph(["F", "A", {"id": "m"}], [{"expression": "1 * m", "id": "e"}], yAxis=axes)
    first, second = with_period(page.read(body(counts, mixed)), 60).widgets
    assert ([line.period_seconds for line in second.lines], list(first.marks)) == ([60, 60], [])
    assert (first.label, second.label) == ("in 60 s", "in 5 min")
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
