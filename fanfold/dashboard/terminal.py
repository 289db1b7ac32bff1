"""Shows the page in a terminal: each series as a row of blocks, with its last, largest and smallest value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fanfold.dashboard.data import Curve, Filled, Span
from fanfold.dashboard.deployed import Alarm
from fanfold.dashboard.figures import blocks, short

CELLS = 36
"""The width of a row of blocks on a wide terminal."""

FEWEST_CELLS = 8
"""The least useful width of a row of blocks."""

LABEL = 34
"""The largest width of the labels."""

NUMBER = 15
"""The width of a number with its word and a gap."""

STATES = {"OK": ("✓", "green"), "ALARM": ("✗", "red"), "INSUFFICIENT_DATA": ("·", "dim")}
"""The sign and colour of each alarm state; not everybody sees colours."""


def shown(heading: str, widgets: Sequence[Filled], alarms: Sequence[Alarm], when: Span) -> RenderableType:
    """The whole page: the alarms that are on, then the widgets in order."""
    states = Counter(alarm.state for alarm in alarms)
    told = ", ".join(f"{count} {state.lower().replace('_', ' ')}" for state, count in sorted(states.items()))
    head = Text(f"{heading}  {when.begin:%d %b %H:%M} to {when.end:%H:%M} UTC  alarms: {told or 'none'}", style="bold")
    on = [Text(f"✗ {alarm.name}: {alarm.what}", style="red") for alarm in alarms if alarm.state == "ALARM"]
    by_arn = {alarm.arn: alarm for alarm in alarms}
    width = _label_width(widgets)
    return Group(head, *on, *(part for filled in widgets for part in _widget(filled, by_arn, width)))


def _widget(filled: Filled, alarms: Mapping[str, Alarm], label_width: int) -> Sequence[RenderableType]:
    widget = filled.widget
    if widget.kind == "text":
        return [Text(), *(Text(line.lstrip("# "), style="italic") for line in widget.markdown.splitlines() if line)]
    there = [curve for curve in filled.curves if curve.values]
    title = Text(widget.title or widget.kind, style="bold cyan")
    if there and widget.label:
        title.append(f", {widget.label}", style="not bold dim")
    if filled.curves and not there:
        title.append("  no data", style="not bold dim")
    parts: list[RenderableType] = [Text(), title]
    parts += [_state(alarms.get(arn), arn) for arn in widget.alarms]
    if there:
        parts.append(_Rows(curves=there, label_width=label_width))
    if there and (absent := [curve.label for curve in filled.curves if not curve.values]):
        # One line for all of them, because a quiet deployment has many.
        parts.append(Text(f"no data: {', '.join(absent)}", style="dim"))
    if not filled.curves and not widget.alarms:
        parts.append(Text(f"a {widget.kind} widget: not shown here", style="dim"))
    if there:
        parts += [Text(f"marked at {short(mark.value)}: {mark.label}", style="dim") for mark in widget.marks]
    parts += [Text(problem, style="yellow") for problem in filled.problems]
    return parts


def _label_width(widgets: Sequence[Filled]) -> int:
    """The width of the longest label, so that all rows are aligned."""
    labels = (curve.label for filled in widgets for curve in filled.curves if curve.values)
    return min(LABEL, max(map(cell_len, labels), default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Curves as rows that fit the terminal. The newest value, at the right end, is never cut off."""

    curves: Sequence[Curve]
    label_width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - self.label_width - 2
        numbers = 3 if room - 3 * NUMBER >= FEWEST_CELLS else 2
        cells = max(FEWEST_CELLS, min(CELLS, room - numbers * NUMBER))
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
        table.add_column(width=self.label_width, no_wrap=True)
        table.add_column(width=cells, no_wrap=True, style="cyan")
        for _ in range(numbers):
            table.add_column(justify="right", no_wrap=True, min_width=NUMBER - 2)
        for curve in self.curves:
            values = curve.values
            told = (f"last {short(values[-1])}", f"max {short(max(values))}", f"min {short(min(values))}")
            table.add_row(curve.label, blocks(curve.series, cells), *told[:numbers])
        yield table


def _state(alarm: Alarm | None, arn: str) -> Text:
    if alarm is None:
        return Text(f"? {arn}", style="dim")
    sign, style = STATES.get(alarm.state, ("?", "dim"))
    return Text(f"{sign} {alarm.name}", style=style)
