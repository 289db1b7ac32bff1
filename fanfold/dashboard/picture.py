"""The page as a picture, laid out on the dashboard's own grid. matplotlib is loaded when the first one is drawn."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanfold.dashboard import graph
from fanfold.dashboard.data import Filled, Span
from fanfold.dashboard.deployed import Alarm
from fanfold.dashboard.figures import short
from fanfold.dashboard.page import COLUMNS, Widget
from fanfold.local.local_stack import LocalError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES = 0.62
ROW_INCHES = 0.5
HEAD_INCHES = 0.45
DOTS_PER_INCH = 110

COLOURS = 160
"""In the file's palette."""

STATES = {"OK": "#2ca02c", "ALARM": "#d62728", "INSUFFICIENT_DATA": "#9aa0a6"}
PAPER = "#eef0f3"

LETTER_INCHES = 0.062
"""About the width of a letter of 8 points."""

LINE_INCHES = 0.145
"""The height of a line of 8 points."""


def draw(path: Path, heading: str, widgets: Sequence[Filled], alarms: Sequence[Alarm], when: Span) -> None:
    """Write the page to a PNG file.

    Raises `LocalError` (usage) when matplotlib is missing or the file can't be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LocalError("A picture needs matplotlib: pip install 'fanfold[dashboard]'.", status=2) from error
    rows = max((filled.widget.y + filled.widget.height for filled in widgets), default=1)
    width, height = COLUMNS * COLUMN_INCHES, rows * ROW_INCHES + HEAD_INCHES
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    figure.text(0.008, 1 - 0.6 * HEAD_INCHES / height, heading, size=13, weight="bold", color=graph.INK, va="center")
    told = f"{when.begin:%d %b %Y %H:%M} to {when.end:%H:%M} UTC"
    figure.text(0.992, 1 - 0.6 * HEAD_INCHES / height, told, size=10, color=graph.FAINT, va="center", ha="right")
    on = [alarm.name for alarm in alarms if alarm.state == "ALARM"]
    told = f"{len(on)} of {len(alarms)} alarms are on" if alarms else ""
    colour = STATES["ALARM"] if on else graph.FAINT
    figure.text(0.5, 1 - 0.6 * HEAD_INCHES / height, told, size=10, color=colour, va="center", ha="center")
    by_arn = {alarm.arn: alarm for alarm in alarms}
    for filled in widgets:
        _Card(figure, filled, by_arn, when).draw()
    try:
        _save(figure, path)
    except OSError as error:
        raise LocalError(f"The picture can't be written to {path}: {error.strerror or error}.", status=2) from error


def _save(figure: Figure, path: Path) -> None:
    """A picture of lines and letters has few colours: with a palette it is a third of the size."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DOTS_PER_INCH, facecolor=PAPER, format="png")
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, format="png", optimize=True)


class _Card:
    """One widget's place on the figure; measures are inches from its lower left corner."""

    def __init__(self, figure: Figure, filled: Filled, alarms: Mapping[str, Alarm], when: Span) -> None:
        self._figure = figure
        self._filled = filled
        self._alarms = alarms
        self._when = when
        self._all_width, self._all_height = figure.get_size_inches()
        widget = filled.widget
        self._width = widget.width * COLUMN_INCHES - 0.08
        self._height = widget.height * ROW_INCHES - 0.08
        self._left = widget.x * COLUMN_INCHES + 0.04
        self._bottom = self._all_height - HEAD_INCHES - (widget.y + widget.height) * ROW_INCHES + 0.04

    def _axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        box = (
            (self._left + left) / self._all_width,
            (self._bottom + bottom) / self._all_height,
            max(0.01, width / self._all_width),
            max(0.01, height / self._all_height),
        )
        return self._figure.add_axes(box)

    def _write(self, x: float, y: float, text: str, **style: Any) -> None:
        slot = ((self._left + x) / self._all_width, (self._bottom + y) / self._all_height)
        self._figure.text(*slot, text, **{"color": graph.INK, "size": 8, "va": "top", **style})

    def draw(self) -> None:
        """Put the widget on the figure."""
        widget = self._filled.widget
        if widget.kind == "text":
            self._text(widget.markdown)
            return
        self._background()
        self._write(0.1, self._height - 0.08, _fitting(widget.title, self._width - 0.2, 9.5), size=9.5, weight="bold")
        if widget.kind == "alarm" or (widget.alarms and not widget.lines):
            self._states(widget)
        elif widget.kind != "metric":
            self._write(0.1, self._height - 0.4, f"a {widget.kind} widget: not drawn here", color=graph.FAINT)
        elif widget.view in ("singleValue", "gauge"):
            self._numbers()
        else:
            self._graph(widget)

    def _background(self) -> None:
        card = self._axes(0, 0, self._width, self._height)
        card.set_facecolor(graph.CARD)
        card.set_xticks([])
        card.set_yticks([])
        for spine in card.spines.values():
            spine.set_color("#d5dbdb")

    def _text(self, markdown: str) -> None:
        top = self._height - 0.06
        for line in markdown.splitlines():
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line).replace("**", "").replace("`", "").strip()
            level = len(line) - len(line.lstrip("#"))
            size = {0: 8.5, 1: 14, 2: 12}.get(level, 10)
            width = max(10, int(self._width / (LETTER_INCHES * size / 8)))
            for row in textwrap.wrap(plain.lstrip("# "), width) or [""]:
                if top < 0.05:
                    return
                self._write(0.06, top, row, size=size, weight="bold" if level else "normal")
                top -= LINE_INCHES * size / 8 * 1.15

    def _states(self, widget: Widget) -> None:
        columns = max(1, int(self._width // 2.6))
        for number, arn in enumerate(widget.alarms):
            alarm = self._alarms.get(arn)
            name, state = (alarm.name, alarm.state) if alarm else (arn.rpartition(":")[2], "gone")
            x = 0.12 + number % columns * (self._width - 0.2) / columns
            y = self._height - 0.4 - number // columns * LINE_INCHES * 1.5
            self._write(x, y, "■", color=STATES.get(state, graph.FAINT), size=9)
            self._write(x + 0.15, y, _fitting(name, (self._width - 0.2) / columns - 0.3, 8))

    def _numbers(self) -> None:
        curves = self._filled.curves
        each = self._width / max(1, len(curves))
        for number, curve in enumerate(curves):
            told = short(curve.values[-1]) if curve.values else "–"
            x, y = (number + 0.5) * each, self._height * 0.55
            self._write(x, y, told, size=17, ha="center", va="center", color=graph.colour(curve, number))
            self._write(x, y - 0.22, _fitting(curve.label, each - 0.1, 8), ha="center", color=graph.FAINT)

    def _graph(self, widget: Widget) -> None:
        curves = self._filled.curves
        labels = [curve.label for curve in curves]
        longest = max((len(label) for label in labels), default=0) * LETTER_INCHES * 0.95 + 0.42
        columns = max(1, min(len(labels), int((self._width - 0.2) // longest)))
        foot = 0.36 + -(-len(labels) // columns) * LINE_INCHES
        two = any(curve.line.right for curve in curves)
        side = 0.62 if widget.left.label else 0.5
        axes = self._axes(side, foot, self._width - side - (0.55 if two else 0.15), self._height - foot - 0.36)
        drawn = graph.draw(axes, self._filled, self._when)
        if problems := self._filled.problems:
            told = textwrap.fill("; ".join(problems), int(self._width / LETTER_INCHES))
            self._write(0.1, self._height - 0.26, told, color="#b36b00", size=6.5)
        if drawn:
            legend = self._axes(0, 0, self._width, self._height)
            legend.axis("off")
            legend.legend(
                handles=drawn,
                labels=labels,
                loc="lower left",
                bbox_to_anchor=(0.005, 0.0),
                ncols=columns,
                fontsize=7.5,
                frameon=False,
                handlelength=1.1,
                handletextpad=0.4,
                columnspacing=1.0,
                labelspacing=0.25,
                borderpad=0.3,
            )


def _fitting(text: str, inches: float, points: float) -> str:
    most = max(4, int(inches / (LETTER_INCHES * points / 8)))
    return text if len(text) <= most else f"{text[: most - 1]}…"
