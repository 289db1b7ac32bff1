"""One widget's curves on matplotlib's axes: lines, marks, the axes' numbers and times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fanfold.dashboard.data import Curve, Filled, Span
from fanfold.dashboard.figures import short
from fanfold.dashboard.page import Axis, Mark

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

CARD, INK, FAINT = "#ffffff", "#16191f", "#687078"
ALARMING = "#d62728"

COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
"""Of lines that have none of their own, in order."""


def colour(curve: Curve, number: int) -> str:
    """The colour of a widget's curve: the page's own, else the next of ours."""
    return curve.line.color or COLOURS[number % len(COLOURS)]


def draw(axes: Axes, filled: Filled, when: Span) -> Sequence[Artist]:
    """Draw a widget's curves and marks; gives what stands for each curve in a legend."""
    widget, curves = filled.widget, filled.curves
    longest = max((curve.period_seconds for curve in curves), default=1)
    _style(axes, widget.left, when, longest)
    other = axes
    if any(curve.line.right for curve in curves):
        other = axes.twinx()
        _style(other, widget.right, when, longest)
    if widget.stacked and curves:
        drawn: Sequence[Artist] = _stacked(axes, curves, when)
    else:
        drawn = [
            _line(other if curve.line.right else axes, curve, colour(curve, number), when)
            for number, curve in enumerate(curves)
        ]
    for number, mark in enumerate(widget.marks):
        _mark(other if mark.right else axes, mark, at_right=number % 2 == 0)
    _bounds(axes, widget.left)
    if other is not axes:
        _bounds(other, widget.right)
    if not any(curve.values for curve in curves):
        axes.set_yticks([])
        nothing = "no data\n(AWS's own: emulators have few)" if filled.of_aws else "no data"
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", va="center", color=FAINT, size=9)
    return drawn


def _line(axes: Axes, curve: Curve, line_colour: str, when: Span) -> Artist:
    values = [float("nan") if value is None else value for value in curve.series]
    # The dots show what has no neighbour, and would be no line.
    (line,) = axes.plot(_days(curve, when), values, color=line_colour, linewidth=1.3, marker="o", markersize=2)
    return line


def _stacked(axes: Axes, curves: Sequence[Curve], when: Span) -> Sequence[Artist]:
    series = [[value or 0.0 for value in curve.series] for curve in curves]
    colours = [colour(curve, number) for number, curve in enumerate(curves)]
    return axes.stackplot(_days(curves[0], when), series, colors=colours, alpha=0.8)


def _days(curve: Curve, when: Span) -> list[float]:
    return [_day(time) for time in when.times(curve.period_seconds)]


def _day(time: datetime) -> float:
    """A time as matplotlib counts it: in days since 1970."""
    return time.timestamp() / 86_400


def _mark(axes: Axes, mark: Mark, *, at_right: bool) -> None:
    """A line with its label at one end; neighbours have theirs at the other, since they may lie close."""
    mark_colour = mark.color or ALARMING
    axes.axhline(mark.value, color=mark_colour, linestyle="--", linewidth=1)
    axes.annotate(
        mark.label,
        (1 if at_right else 0, mark.value),
        xycoords=("axes fraction", "data"),
        xytext=(-3 if at_right else 3, 2),
        textcoords="offset points",
        size=6.5,
        color=mark_colour,
        ha="right" if at_right else "left",
        va="bottom",
    )


def _style(axes: Axes, told: Axis, when: Span, period_seconds: int) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    axes.set_facecolor(CARD)
    axes.grid(axis="y", color="#e6e9ec", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7, colors=FAINT, length=2)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color("#aab7b8")
    axes.set_xlim(
        _day(when.times(period_seconds)[0]), _day(when.end)
    )  # a first period that began earlier is shown, too
    axes.xaxis_date()
    locator = AutoDateLocator(minticks=2, maxticks=6)  # type: ignore[no-untyped-call]  # matplotlib's own gap
    axes.xaxis.set_major_locator(locator)
    dates = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]  # likewise
    axes.xaxis.set_major_formatter(dates)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2))
    axes.yaxis.set_major_formatter(lambda value, position: short(value))
    if told.label:
        axes.set_ylabel(told.label, size=7, color=FAINT)


def _bounds(axes: Axes, told: Axis) -> None:
    """From 0, unless something is below it; as the page says where it does."""
    low, high = axes.get_ylim()
    if told.least is not None:
        low = told.least
    elif low > -0.1 * high:  # matplotlib's margin below a line at 0
        low = 0.0
    high = high + 0.06 * (high - low) if told.most is None else told.most
    axes.set_ylim(low, high if high > low else low + 1)
