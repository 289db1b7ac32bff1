"""`explore`: kill the worker of a run at every place it can die, in memory, and show how each run ends."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fanfold.commands import output
from fanfold.commands.given import json_of
from fanfold.commands.output import JsonFlag
from fanfold.local.local_stack import LocalError
from fanfold.text.printable import shown

if TYPE_CHECKING:
    from fanfold.explore import Exploration, Point

EVERY_SECONDS = 5.0
"""On a pipe the number of tries is told this often."""


def explore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow document, YAML or JSON.")],
    input_: Annotated[
        str | None, typer.Option("--input", metavar="JSON|@FILE", help="The run's input; @- reads stdin.")
    ] = None,
    signal: Annotated[
        list[str] | None, typer.Option(metavar="NAME=JSON", help="What a wait for this signal gets; may be repeated.")
    ] = None,
    ends: Annotated[
        str, typer.Option(metavar="STATUS", help="How the run is to end when nothing disturbs it.")
    ] = "succeeded",
    pairs: Annotated[bool, typer.Option("--pairs", metavar="", help="Two deaths, at every pair of places.")] = False,
    json_: JsonFlag = False,
) -> None:
    """Kill the worker before and after each of its calls to a service; exit status 1 when a run ends wrong.

    First the run is played undisturbed. It has to succeed, or to end as --ends says.

    Needs no stack: the run is played in memory, on virtual time, and its tasks are executed for real in this process.
    """
    if not file.is_file():
        raise typer.BadParameter(f"{file}: there is no such file")
    given = json_of(input_ or "{}", "--input")
    signals = dict(_signal(text) for text in signal or [])
    try:
        from fanfold.engine.errors import InvalidDocument
        from fanfold.engine.record.run import TERMINAL, Status
        from fanfold.explore import explore as explored
        from fanfold.testing.virtual_time import Stalled
    except ImportError as error:
        raise LocalError(f"Exploring needs what the service needs: fanfold[service] ({error}).", status=2) from error
    if ends not in TERMINAL:
        raise typer.BadParameter(f"--ends is one of {', '.join(sorted(TERMINAL))}, not {ends!r}")
    try:
        found = explored(
            file, given, signals=signals, ends=Status(ends), pairs=pairs, progress=None if json_ else _Progress()
        )
    except InvalidDocument as error:
        problems = "".join(f"\n  {problem.pointer or '/'}: {problem.detail}" for problem in error.problems)
        raise LocalError(f"{file}: The workflow is invalid:{problems}", status=2) from error
    except (ValueError, Stalled) as error:
        raise LocalError(f"{error}.", status=2) from error
    if json_:
        output.emit(_shown(found))
    else:
        _print(found)
    if found.wrong:
        raise typer.Exit(output.RUN_FAILED)


def _signal(text: str) -> tuple[str, Any]:
    name, equals, payload = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"--signal is NAME=JSON, not {text!r}")
    return name, json_of(payload, "--signal")


class _Progress:
    """Reports the number of tries, how many end wrong, and the remaining time."""

    def __init__(self) -> None:
        self._begun = self._told = time.monotonic()
        self._wrong = 0

    def __call__(self, number: int, total: int, point: Point) -> None:
        now = time.monotonic()
        self._wrong += bool(point.wrong)
        left = (now - self._begun) / number * (total - number)
        line = f"{number} of {total}, {self._wrong} of them wrong, {left:.0f} s left …"
        if sys.stderr.isatty():
            end = "" if number < total else "\r\033[K"
            print(f"\r\033[K{line}", end=end, file=sys.stderr, flush=True)
        elif now - self._told >= EVERY_SECONDS:
            self._told = now
            output.say(line)


def _print(found: Exploration) -> None:
    """Every single death, and of the pairs those that ended wrong."""
    table = Table(box=None, pad_edge=False)
    table.add_column("the worker dies", overflow="fold")
    table.add_column("and the run ends", overflow="fold")
    for point in found.points:
        if point.wrong or len(point.where) < 2:
            end = "\n".join(shown(wrong) for wrong in point.wrong) or "right"
            table.add_row(Text(str(point)), Text(end), style="red" if point.wrong else None)
    console = output.console()
    console.print(table)
    for note in found.notes:
        console.print(note)
    tries, wrong = len(found.points), len(found.wrong)
    console.print(f"\nUndisturbed, the run is {found.end}.")
    console.print(f"{found.workflow}: {len(found.calls)} calls, {tries} tries, {wrong or 'none'} of them end wrong.")


def _shown(found: Exploration) -> dict[str, Any]:
    return {
        "workflow": found.workflow,
        "end": found.end,
        "calls": found.calls,
        "points": [{"where": point.where, "wrong": [asdict(wrong) for wrong in point.wrong]} for point in found.points],
        "notes": found.notes,
    }
