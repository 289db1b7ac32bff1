"""Draws a run: its steps as a tree with status, duration, attempts and items."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from fanfold.client.results import MapProgress, Run, StepError
from fanfold.text.printable import shown, shown_json

MARKS = {
    "pending": ("·", "dim"),
    "queued": ("·", "cyan"),
    "running": ("●", "cyan"),
    "waiting": ("◔", "cyan"),
    "paused": ("‖", "yellow"),
    "retrying": ("↻", "yellow"),
    "interrupted": ("⚡", "yellow"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("–", "dim"),
}
"""The sign and colour of each status; not everybody sees colours."""

UNKNOWN = ("●", "cyan")
BAR_CELLS = 20
QUIET = ("pending", "succeeded", "skipped", "cancelled")
"""Statuses that are left out first if a terminal is too small."""


@dataclass(slots=True, kw_only=True)
class Head:
    """The facts of a run."""

    run_id: str
    workflow: str = ""
    status: str = "queued"
    reason: str | None = None
    epoch: int = 0
    began: datetime | None = None
    ended: datetime | None = None


@dataclass(slots=True, kw_only=True)
class StepLine:
    """The facts of one step."""

    status: str = "pending"
    attempt: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    note: str = ""
    map: MapProgress | None = None


def tree(head: Head, steps: Mapping[str, StepLine], *, now: datetime | None, rows: int | None = None) -> RenderableType:
    """The run and its steps, in at most so many rows. Active steps are timed up to `now`."""
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(no_wrap=True)
    # A live view has one row for each step; the final view wraps, so that it is complete.
    table.add_column(no_wrap=rows is not None, overflow="fold" if rows is None else "ellipsis")
    sign, style = MARKS.get(head.status, UNKNOWN)
    status = shown(f"{head.status} ({head.reason})" if head.reason else head.status)
    table.add_row(
        Text.assemble((sign, style), " ", (shown(head.run_id), "bold")),
        Text(status, style),
        Text(_took(head.began, head.ended or now)),
        Text(f"epoch {head.epoch}" if head.epoch else ""),
        Text(shown(head.workflow), "dim"),
    )
    fitting, left_out = _fitting(steps, None if rows is None else rows - 1)
    for number, (name, line) in enumerate(fitting.items(), 1):
        last = number == len(fitting) and not left_out
        table.add_row(*_row("└─ " if last else "├─ ", name, line, now))
    if left_out:
        table.add_row(Text.assemble("└─ ", (left_out, "dim")))
    return table


def _row(branch: str, name: str, line: StepLine, now: datetime | None) -> tuple[Text, Text, Text, Text, Text]:
    sign, style = MARKS.get(line.status, UNKNOWN)
    ended = line.ended if line.status not in ("running", "waiting") else None
    told = [_bar(line.map)] if line.map is not None else []
    told += [Text(shown(line.note), "dim")] if line.note else []
    return (
        Text.assemble((branch, "dim"), (sign, style), f" {shown(name)}"),
        Text(shown(line.status), style),
        Text(_took(line.began, ended or now)),
        Text(f"attempt {line.attempt}" if line.attempt > 1 else ""),
        Text("  ").join(told),
    )


def _fitting(steps: Mapping[str, StepLine], rows: int | None) -> tuple[Mapping[str, StepLine], str]:
    """The steps that fit, active ones first, and the number of those that do not."""
    if rows is None or len(steps) <= rows:
        return steps, ""
    by_interest = sorted(steps, key=lambda name: steps[name].status in QUIET)
    chosen = set(by_interest[: max(0, rows - 1)])
    counts: dict[str, int] = {}
    for name, line in steps.items():
        if name not in chosen:
            counts[line.status] = counts.get(line.status, 0) + 1
    left_out = "… " + ", ".join(f"{count:,} {shown(status)}" for status, count in counts.items())
    return {name: line for name, line in steps.items() if name in chosen}, left_out


def _bar(progress: MapProgress) -> Text:
    """A bar of ended, failed and open items."""
    items, done, failed = progress["items"], progress["done"] or 0, progress["failed"] or 0
    good, bad = max(0, done - failed), failed
    cells = [round(BAR_CELLS * part / items) if items else 0 for part in (good, good + bad)]
    if failed and cells[1] == cells[0]:
        cells[0] = max(0, cells[0] - 1)  # a failure is always visible
        cells[1] = cells[0] + 1
    return Text.assemble(
        ("█" * cells[0], "green"),
        ("▒" * (cells[1] - cells[0]), "red"),
        ("░" * (BAR_CELLS - cells[1]), "dim"),
        f" {done:,}/{items:,}",
        (f" {failed:,} failed" if failed else "", "red"),
    )


def _took(begin: datetime | None, end: datetime | None) -> str:
    if begin is None or end is None:
        return ""
    seconds = max(0.0, (end - begin).total_seconds())
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def show(run: Run, console: Console, *, now: datetime | None = None) -> None:
    """A run with its steps, error and result. Active steps are timed up to `now`."""
    head = Head(
        run_id=run["id"],
        workflow=run["workflow"],
        status=run["status"],
        reason=run["reason"],
        epoch=run["epoch"],
        began=_time(run["created_at"]),
        ended=_time(run["finished_at"]),
    )
    steps = {
        name: StepLine(
            status=step["status"],
            attempt=step["attempts"],
            began=_time(step["started_at"]),
            ended=_time(step["finished_at"]),
            # The error of an attempt before a success is not shown.
            note=_error_text(step["error"]) if step["error"] and step["status"] != "succeeded" else "",
            map=step.get("map"),
        )
        for name, step in run["steps"].items()
    }
    console.print(tree(head, steps, now=now))
    if run["error"]:
        console.print(Text(f"  {_error_text(run['error'])}", "red"), soft_wrap=True)
    if run["output"] is not None:
        console.print("  output:", end=" ")
        text = shown_json(json.dumps(run["output"], indent=2, ensure_ascii=False))
        console.print(JSONHighlighter()(Text(text)), soft_wrap=True)


def _error_text(error: StepError) -> str:
    return shown(f"{error['type']}: {error['message']}")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
