"""A run by its events: its state, a line for each event, and a live view of both."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from rich.console import Console, RenderableType
from rich.live import Live

from fanfold.client.errors import ApiError
from fanfold.client.results import Event, MapProgress, Run
from fanfold.commands.run_tree import Head, StepLine, tree
from fanfold.text.printable import shown

LOOK_SECONDS = 1.0
"""Seconds between two polls of the items of an open map, which cause no events."""

REFRESHES_PER_SECOND = 8

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

Look = Callable[[Sequence[str]], Mapping[str, MapProgress]]
"""Asks how far the maps of these names are."""


class Board:
    """A run's state, computed from its events: `add` them in order, then read `head` and `steps`.

    `monotonic` (seconds) advances the clocks of active steps between two events.
    """

    def __init__(
        self,
        run_id: str,
        *,
        workflow: str = "",
        steps: Iterable[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.head = Head(run_id=run_id, workflow=workflow)
        self.steps: dict[str, StepLine] = {name: StepLine() for name in steps}
        self._monotonic = monotonic
        self._told_at: datetime | None = None
        self._heard_at = 0.0

    def add(self, event: Event) -> None:
        """Fold in the next event."""
        at = datetime.fromisoformat(event["at"])
        self._told_at, self._heard_at = at, self._monotonic()
        kind = event["type"]
        self._fold_run(kind, at)
        name = event.get("step")
        if name is None:
            return
        line = self.steps.setdefault(name, StepLine())
        line.status = _STEP_STATUS.get(kind, line.status)
        line.attempt = event.get("attempt") or line.attempt
        line.note = note(event)
        if kind in ("map.started", "map.finished") and isinstance(items := event.get("items"), int):
            done = items if kind == "map.finished" else 0
            line.map = {"items": items, "done": done, "failed": event.get("failed", 0)}
            line.note = ""
        if kind in ("step.started", "map.started"):
            line.began, line.ended = at, None
        elif kind not in ("step.emitted", "map.finished"):
            line.ended = at

    def _fold_run(self, kind: str, at: datetime) -> None:
        head = self.head
        head.began = head.began or at
        head.status = _RUN_STATUS.get(kind, head.status)
        if kind == "run.claimed":
            head.epoch += 1
        if kind == "run.redriven":
            head.ended = None
        elif kind in ("run.succeeded", "run.failed", "run.cancelled"):
            head.ended = at
        if kind == "run.suspended":
            # No worker holds the run, so its active steps wait for a time, a signal, or items.
            for line in self.steps.values():
                line.status = "waiting" if line.status == "running" else line.status

    def now(self) -> datetime | None:
        """The service's time: the newest event's, and the time that has passed here since."""
        if self._told_at is None:
            return None
        return self._told_at + timedelta(seconds=max(0.0, self._monotonic() - self._heard_at))

    def open_maps(self) -> Sequence[str]:
        """The open maps, whose items are polled."""
        return [name for name, line in self.steps.items() if line.map and line.status in ("running", "waiting")]

    def tree(self, *, rows: int | None = None) -> RenderableType:
        """The board in at most so many rows."""
        return tree(self.head, self.steps, now=self.now(), rows=rows)


def note(event: Event) -> str:
    """What an event is about, in a few words on one line."""
    about = {name: value for name, value in event.items() if name not in _COLUMNS and value is not None}
    error = event.get("error")
    told = []
    if error:
        told.append(f"{error.get('type', 'error')}: {error.get('message', '')}")
        about.pop("error")
    if isinstance(delay := about.get("delay_seconds"), int | float):
        told.append(f"again in {delay:.3g} s")
        about.pop("delay_seconds")
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
    told += [f"{name}={text}" for name, text in texts.items()]
    return shown(" ".join(told))


def line(event: Event) -> str:
    """One event as one readable line, its columns the same for all of them."""
    at = datetime.fromisoformat(event["at"]).strftime("%H:%M:%S.%f")[:-3]
    attempt = event.get("attempt")
    step = shown(event.get("step") or "") + (f" #{attempt}" if attempt and attempt > 1 else "")
    return f"{event['seq']:>4}  {at}  {shown(event['type']):<22} {step:<18} {note(event)}".rstrip()


def watch(
    events: Iterable[Event], console: Console, run: Run, *, look: Look | None = None, lines: bool = False
) -> Iterator[Event]:
    """Show the events as they arrive and yield each: a live tree on a terminal, else one line for each.

    With `lines` a terminal shows both. The tree disappears at the end. `look` returns the items of open maps.
    """
    if not console.is_terminal:
        for event in events:
            console.print(line(event), markup=False, emoji=False, highlight=False, soft_wrap=True)
            yield event
        return
    board = Board(run["id"], workflow=run["workflow"], steps=run["steps"])
    lock = threading.Lock()  # the view is drawn in a thread of its own

    def view() -> RenderableType:
        with lock:
            return board.tree(rows=console.height - 1)

    with (
        Live(get_renderable=view, console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True) as live,
        _looking(board, lock, look),
    ):
        for event in events:
            with lock:
                board.add(event)
            if lines:
                console.print(line(event), markup=False, emoji=False, highlight=False, soft_wrap=True)
            live.refresh()
            yield event


@contextlib.contextmanager
def _looking(board: Board, lock: threading.Lock, look: Look | None) -> Iterator[None]:
    """Keeps the board's maps up to date meanwhile."""
    if look is None:
        yield
        return
    over = threading.Event()

    def follow() -> None:
        while not over.wait(LOOK_SECONDS):
            with lock:
                names = board.open_maps()
            if not names:
                continue
            # If a poll fails, the bars stay as they are; the events report a missing service.
            with contextlib.suppress(ApiError):
                found = look(names)
                with lock:
                    for name in set(found) & set(board.open_maps()):
                        board.steps[name].map = found[name]

    thread = threading.Thread(target=follow, name="look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOOK_SECONDS)
