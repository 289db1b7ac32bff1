"""`queues`: the queued runs of each class, once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from fanfold.client.results import Queue
from fanfold.client.sync_client import Client
from fanfold.commands import output
from fanfold.commands.output import JsonFlag
from fanfold.text.printable import shown


def queues(
    watch: Annotated[
        bool, typer.Option("--watch", "-w", metavar="", help="Go on: live on a terminal, else line by line.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.2, help="With --watch: seconds between two looks.")] = 2.0,
    looks: Annotated[int | None, typer.Option(min=1, help="With --watch: end after so many; default: Ctrl-C.")] = None,
    json_: JsonFlag = False,
) -> None:
    """Show how full each class is, and how fast it drains."""
    if not watch:
        if looks is not None:
            raise typer.BadParameter("--looks is for --watch")
        with output.client() as client:
            found = client.queues()
        if json_:
            output.emit(found)
        else:
            output.console().print(table(found))
        return
    with output.client() as client:
        seen = _looks(client, every_seconds=every, most=looks)
        if json_:
            for found in seen:
                output.emit(found, indent=None)
        else:
            _watch(seen)


def table(queues: Sequence[Queue]) -> Table:
    """The classes, a row each."""
    shown = Table(box=None, pad_edge=False)
    for title in ("class", "lanes", "queued", "bound", "oldest", "drains"):
        shown.add_column(title)
    for queue in queues:
        shown.add_row(*_cells(queue))
    return shown


def lines(queues: Sequence[Queue], at: datetime) -> Iterator[str]:
    """One line for each class, with the time of day."""
    for queue in queues:
        name, lanes, queued, bound, oldest, drains = _cells(queue)
        told = f"{at:%H:%M:%S}  {name:<12} {queued:>6} of {bound:<8} {lanes}"
        yield told + (f", oldest {oldest}" if oldest else "") + (f", drains {drains}" if drains else "")


def _cells(queue: Queue) -> tuple[str, str, str, str, str, str]:
    oldest, drain = queue["oldest_age_seconds"], queue["drain_per_second"]
    return (
        shown(queue["class"]),
        shown(", ".join(f"{name} {lane['queued']}" for name, lane in queue["lanes"].items())),
        str(queue["queued"]),
        str(queue["max_queue_depth"] or "none"),
        "" if oldest is None else f"{oldest:.0f} s",
        "" if drain is None else f"{drain:.1f}/s",
    )


def _looks(client: Client, *, every_seconds: float, most: int | None) -> Iterator[list[Queue]]:
    for number in count(1):
        yield client.queues()
        client.retry_for_seconds = output.WATCHING_SECONDS  # the API has answered before, so wait out an outage
        if number == most:
            return
        time.sleep(every_seconds)


def _watch(seen: Iterator[list[Queue]]) -> None:
    console = output.console()
    if not console.is_terminal:
        for found in seen:
            for line in lines(found, datetime.now().astimezone()):
                output.tell(line)
        return
    with Live(console=console, auto_refresh=False) as live:
        for found in seen:
            live.update(table(found), refresh=True)
