"""A run as it goes on: a live table of its steps on a terminal, one line an event anywhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fanfold.results import Event, Run

MARKS = {
    "pending": ("·", "dim"),
    "running": ("●", "cyan"),
    "retrying": ("↻", "yellow"),
    "interrupted": ("⚡", "yellow"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("–", "dim"),
}
"""How a step's status looks: a sign and a colour, since neither alone reaches everybody."""

_STEP_STATUS = {
    "step.started": "running",
    "map.started": "running",
    "map.finished": "running",
    "step.succeeded": "succeeded",
    "step.failed": "failed",
    "step.retry_scheduled": "retrying",
    "step.interrupted": "interrupted",
    "step.skipped": "skipped",
    "step.cancelled": "cancelled",
}

_RUN_STATUS = {
    "run.accepted": "queued",
    "run.claimed": "running",
    "run.suspended": "waiting",
    "run.paused": "paused",
    "run.resumed": "running",
    "run.redriven": "waiting",
    "run.succeeded": "succeeded",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}


_COLUMNS = frozenset({"seq", "at", "type", "step", "attempt"})


@dataclass(slots=True)
class StepLine:
    """What is known of one step from the events so far."""

    status: str = "pending"
    attempt: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    note: str = ""


class Board:
    """A run's state, folded from its events: `add` them in order, then read `status`, `epoch` and `steps`."""

    def __init__(self, run_id: str, *, steps: Iterable[str] = ()) -> None:
        self.run_id = run_id
        self.status = "queued"
        self.epoch = 0
        self.began: datetime | None = None
        self.now: datetime | None = None
        self.steps: dict[str, StepLine] = {name: StepLine() for name in steps}

    def add(self, event: Event) -> None:
        """Fold in the next event."""
        at = datetime.fromisoformat(event["at"])
        self.now = at
        self.began = self.began or at
        kind = event["type"]
        self.status = _RUN_STATUS.get(kind, self.status)
        if kind == "run.claimed":
            self.epoch += 1
        name = event.get("step")
        if name is None:
            return
        line = self.steps.setdefault(name, StepLine())
        line.status = _STEP_STATUS.get(kind, line.status)
        line.attempt = event.get("attempt") or line.attempt
        line.note = note(event)
        if kind in ("step.started", "map.started"):
            line.began, line.ended = at, None
        elif kind != "step.emitted":
            line.ended = at

    def table(self) -> Table:
        """The board as it looks on a terminal."""
        table = Table(box=None, pad_edge=False, show_header=False)
        sign, style = MARKS.get(self.status, ("●", "cyan"))
        elapsed = _seconds(self.began, self.now)
        table.add_row(
            Text(sign, style), Text(self.run_id, "bold"), Text(self.status, style), f"epoch {self.epoch}", elapsed, ""
        )
        for name, line in self.steps.items():
            sign, style = MARKS[line.status]
            attempt = f"attempt {line.attempt}" if line.attempt > 1 else ""
            took = _seconds(line.began, line.ended or self.now)
            table.add_row(
                Text(sign, style), f"  {name}", Text(line.status, style), attempt, took, Text(line.note, "dim")
            )
        return table


def _seconds(begin: datetime | None, end: datetime | None) -> str:
    return f"{(end - begin).total_seconds():.2f} s" if begin and end else ""


def note(event: Event) -> str:
    """What an event is about, in a few words."""
    error = event.get("error")
    if error:
        return f"{error.get('type', 'error')}: {error.get('message', '')}"
    about = {name: value for name, value in event.items() if name not in _COLUMNS and value is not None}
    return " ".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in about.items())


def line(event: Event) -> str:
    """One event as one readable line, its columns the same for all of them."""
    at = datetime.fromisoformat(event["at"]).strftime("%H:%M:%S.%f")[:-3]
    attempt = event.get("attempt")
    step = (event.get("step") or "") + (f" #{attempt}" if attempt and attempt > 1 else "")
    return f"{event['seq']:>4}  {at}  {event['type']:<22} {step:<18} {note(event)}".rstrip()


def watch(events: Iterable[Event], console: Console, run: Run) -> Iterator[Event]:
    """Show the events as they come, and hand each on: live on a terminal, else line by line.

    The live board goes away at the end: what is shown next says how it ended.
    """
    if not console.is_terminal:
        for event in events:
            console.print(line(event), markup=False, highlight=False, soft_wrap=True)
            yield event
        return
    board = Board(run["id"], steps=run["steps"])
    with Live(board.table(), console=console, refresh_per_second=12, transient=True) as live:
        for event in events:
            board.add(event)
            live.update(board.table())
            yield event


def show(run: Run, console: Console) -> None:
    """A run as it stands: its head, its steps, its result."""
    sign, style = MARKS.get(run["status"], ("●", "cyan"))
    reason = f" ({run['reason']})" if run["reason"] else ""
    console.print(
        f"[{style}]{sign} {run['status']}{reason}[/]  [bold]{escape(run['id'])}[/]  {escape(run['workflow'])}"
        f"  epoch {run['epoch']}  {run['created_at']}",
        soft_wrap=True,
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, step in run["steps"].items():
        sign, style = MARKS.get(step["status"], ("●", "cyan"))
        attempts = f"attempts {step['attempts']}" if step["attempts"] > 1 else ""
        took = _seconds(_time(step["started_at"]), _time(step["finished_at"]))
        fault = step["error"]
        why = f"{fault['type']}: {fault['message']}" if fault else ""
        table.add_row(Text(sign, style), f"  {name}", Text(step["status"], style), attempts, took, Text(why, "dim"))
    console.print(table)
    if run["error"]:
        console.print(f"  {run['error']['type']}: {run['error']['message']}", style="red", markup=False, soft_wrap=True)
    if run["output"] is not None:
        console.print("  output:", end=" ")
        console.print_json(data=run["output"])


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
