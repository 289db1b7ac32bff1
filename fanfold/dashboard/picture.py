"""Draws the page with matplotlib, on the dashboard's own grid."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fanfold.dashboard.data import Filled, Span
from fanfold.dashboard.deployed import Alarm
from fanfold.dashboard.figures import short
from fanfold.dashboard.page import COLUMNS
from fanfold.local.local_stack import LocalError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_INCHES = 0.6
"""A column's width and a row's height."""


def draw(path: Path, heading: str, widgets: Sequence[Filled], alarms: Sequence[Alarm], when: Span) -> None:
    """Write the page to a PNG file.

    Raises `LocalError` (usage) when matplotlib is missing or the file can't be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LocalError("A picture needs matplotlib: pip install 'fanfold[dashboard]'.", status=2) from error
    rows = 1 + max((filled.widget.y + filled.widget.height for filled in widgets), default=0)
    figure = Figure(figsize=(COLUMNS * CELL_INCHES, rows * CELL_INCHES))
    on = sum(alarm.state == "ALARM" for alarm in alarms)
    told = f"{when.begin:%d %b %Y %H:%M} to {when.end:%H:%M} UTC   {on} of {len(alarms)} alarms are on"
    figure.text(0.01, 1 - 0.3 / rows, f"{heading}   {told}", size=12, weight="bold", va="top")
    states = {alarm.arn: f"{alarm.name}: {alarm.state}" for alarm in alarms}
    for filled in widgets:
        widget = filled.widget
        # The part of the cell that numbers, title and legend leave for the curves.
        axes = figure.add_axes(
            (
                (widget.x + 0.8) / COLUMNS,
                1 - (1 + widget.y + widget.height - 0.6) / rows,
                (widget.width - 1.2) / COLUMNS,
                max(0.1, widget.height - 1.2) / rows,
            )
        )
        _widget(axes, filled, states, when)
    try:
        figure.savefig(path, format="png", dpi=80)
    except OSError as error:
        raise LocalError(f"The picture can't be written to {path}: {error.strerror or error}.", status=2) from error


def _widget(axes: Axes, filled: Filled, states: Mapping[str, str], when: Span) -> None:
    from matplotlib.dates import DateFormatter

    widget, curves = filled.widget, [curve for curve in filled.curves if curve.values]
    axes.set_title(widget.title, size=9, loc="left", weight="bold")
    axes.set_title("; ".join(filled.problems)[: 9 * widget.width - len(widget.title)], size=6, loc="right")
    if widget.view != "timeSeries" or not curves:
        axes.axis("off")
        told = [widget.markdown, *(states.get(arn, f"{arn}: gone") for arn in widget.alarms)]
        told += [f"{curve.label}: {short(curve.values[-1])}" for curve in curves]
        lines = [line for part in told for line in part.splitlines()] or ["no data"]
        text = "\n".join(textwrap.fill(line, 8 * widget.width) for line in lines)
        axes.text(0, 1, text, transform=axes.transAxes, va="top", size=8, parse_math=False)
        return
    right = axes.twinx() if any(curve.line.right for curve in curves) else axes
    times = [when.times(curve.line.period_seconds) for curve in curves]
    if widget.stacked:
        stack = [[value or 0.0 for value in curve.series] for curve in curves]
        axes.stackplot(times[0], stack, labels=[curve.label for curve in curves])  # type: ignore[arg-type]  # takes dates
    else:
        for number, (curve, at) in enumerate(zip(curves, times, strict=True)):
            values = [float("nan") if value is None else value for value in curve.series]
            colour = curve.line.color or f"C{number}"
            side = right if curve.line.right else axes
            side.plot(at, values, ".-", markersize=3, color=colour, label=curve.label)  # type: ignore[arg-type]  # likewise
    for mark in widget.marks:
        (right if mark.right else axes).axhline(mark.value, color="tab:red", linestyle="--", label=mark.label)
    axes.set_ylabel(widget.label, size=7)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]), top=widget.most)
    axes.set_xlim(when.begin, when.end)  # type: ignore[arg-type]  # likewise
    dates = "%H:%M" if when.end - when.begin < timedelta(days=2) else "%d %b"
    axes.xaxis.set_major_formatter(DateFormatter(dates))  # type: ignore[no-untyped-call]  # matplotlib's own gap
    for side in {axes, right}:
        side.tick_params(labelsize=6)
        side.yaxis.set_major_formatter(lambda value, position: short(value))
        if side.get_legend_handles_labels()[1]:
            side.legend(fontsize=6, loc="upper left" if side is axes else "upper right", framealpha=0.6)
