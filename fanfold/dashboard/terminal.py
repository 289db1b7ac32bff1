"""The page in a terminal: for each widget its series as rows of blocks, with their last, least and greatest values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fanfold.dashboard.data import Curve, Filled, Span
from fanfold.dashboard.deployed import Alarm
from fanfold.dashboard.figures import blocks, short

CELLS = 36
"""How wide a row of blocks is."""

LABEL = 34

STATES = {"OK": ("✓", "green"), "ALARM": ("✗", "red"), "INSUFFICIENT_DATA": ("·", "dim")}
"""How an alarm's state looks: a sign and a colour, since neither alone reaches everybody."""


def shown(heading: str, widgets: Sequence[Filled], alarms: Sequence[Alarm], when: Span) -> RenderableType:
    """The whole page, its widgets in order, and before them the alarms that are on."""
    states = Counter(alarm.state for alarm in alarms)
    told = ", ".join(f"{count} {state.lower().replace('_', ' ')}" for state, count in sorted(states.items()))
    head = Text(f"{heading}  {when.begin:%d %b %H:%M} to {when.end:%H:%M} UTC  alarms: {told or 'none'}", style="bold")
    on = [Text(f"✗ {alarm.name}: {alarm.what}", style="red") for alarm in alarms if alarm.state == "ALARM"]
    by_arn = {alarm.arn: alarm for alarm in alarms}
    return Group(head, *on, *(part for filled in widgets for part in _widget(filled, by_arn)))


def _widget(filled: Filled, alarms: Mapping[str, Alarm]) -> Sequence[RenderableType]:
    widget = filled.widget
    if widget.kind == "text":
        return [Text(), *(Text(line.lstrip("# "), style="italic") for line in widget.markdown.splitlines() if line)]
    parts: list[RenderableType] = [Text(), Text(widget.title or widget.kind, style="bold cyan")]
    if widget.alarms:
        parts += [_state(alarms.get(arn), arn) for arn in widget.alarms]
    if filled.curves:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
        table.add_column(width=LABEL, no_wrap=True)
        table.add_column(width=CELLS, no_wrap=True, style="cyan")
        for _ in range(3):
            table.add_column(justify="right", no_wrap=True, min_width=10)
        for curve in filled.curves:
            table.add_row(*_row(curve))
        parts.append(table)
    elif not widget.alarms:
        parts.append(Text(f"a {widget.kind} widget: not shown here", style="dim"))
    parts += [Text(f"marked at {short(mark.value)}: {mark.label}", style="dim") for mark in widget.marks]
    parts += [Text(problem, style="yellow") for problem in filled.problems]
    return parts


def _row(curve: Curve) -> Sequence[RenderableType]:
    values = curve.values
    if not values:
        return curve.label, Text("no data", style="dim"), "", "", ""
    told = (f"last {short(values[-1])}", f"min {short(min(values))}", f"max {short(max(values))}")
    return curve.label, blocks(curve.series, CELLS), *told


def _state(alarm: Alarm | None, arn: str) -> Text:
    if alarm is None:
        return Text(f"? {arn}", style="dim")
    sign, style = STATES.get(alarm.state, ("?", "dim"))
    return Text(f"{sign} {alarm.name}", style=style)
