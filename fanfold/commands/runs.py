"""Workflows and runs: `apply`, `submit`, `show`, `runs`, `events`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fanfold.client.errors import Problem
from fanfold.client.results import TERMINAL, MapProgress
from fanfold.client.sync_client import Client
from fanfold.commands import batch, output, run_progress, run_tree
from fanfold.commands.given import json_of
from fanfold.commands.keys import SubmitKey
from fanfold.commands.output import JsonFlag
from fanfold.text.printable import shown

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id.")]


def apply(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Workflow documents, YAML or JSON.")],
    json_: JsonFlag = False,
) -> None:
    """Register workflow documents; each prints its name and version."""
    results = []
    with output.client() as client:
        for path in files:
            try:
                document = path.read_bytes()
            except OSError as error:
                raise typer.BadParameter(f"{path}: {error.strerror}") from error
            try:
                result = client.apply(document)
            except ValueError as error:
                raise typer.BadParameter(f"{path}: {shown(error)}") from error
            except Problem as error:
                error.add_note(str(path))  # which of the files it is about
                raise
            results.append(result)
            if not json_:
                output.tell(f"{shown(result['name'])}  {shown(result['version'])}")
    if json_:
        output.emit(results)


def submit(
    workflow: Annotated[str | None, typer.Argument(metavar="WORKFLOW", help="The workflow's name.")] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="JSON|@FILE", help="The run's input; @- reads stdin.")
    ] = None,
    key: SubmitKey = None,
    lane: Annotated[str | None, typer.Option(help="Lane within the workflow's class.")] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="Instead of a lane: 9 is the most urgent, 5 the usual.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Label; may be repeated.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="DURATION", help="Begin later: 30s, at most 15m.")] = None,
    version: Annotated[str | None, typer.Option(help="Another version of the workflow than its current one.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", metavar="", help="Wait for the end; exit status 1 unless it succeeded.")
    ] = False,
    batch_: Annotated[
        str | None,
        typer.Option(
            "--batch", metavar="FILE", help='JSON lines, a run each: {"workflow": …, "input": …}; - reads stdin.'
        ),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Submit a run; prints its id. With --batch, one for each line of a file; WORKFLOW is for lines without one."""
    if batch_ is not None:
        if wait or tag or any(one is not None for one in (input_, lane, priority, delay, version)):
            raise typer.BadParameter("with --batch, each line says its own input, lane and so on; there is no --wait")
        with output.client() as client:
            batch.submit(client, batch_, workflow=workflow, key=key, json_=json_)
        return
    if workflow is None:
        raise typer.BadParameter("submit what? WORKFLOW or --batch FILE is missing")
    value, tags = json_of(input_ or "{}", "--input"), _tags(tag or [])
    with output.client() as client:
        accepted = client.submit(
            workflow,
            value,
            key=key,
            version=version,
            lane=lane,
            priority=priority,
            tags=tags or None,
            delay=delay,
        )
        if wait:
            if not sys.stdout.isatty():
                output.say(
                    f"Run {accepted['id']}; should this be interrupted, it goes on: fanfold show {accepted['id']}"
                )
            _await_end(client, accepted["id"], json_=json_)
        elif json_:
            output.emit(accepted)
        else:
            output.tell(shown(accepted["id"]))


def show(
    run_id: RunId,
    wait: Annotated[
        bool, typer.Option("--wait", metavar="", help="Wait for the end; exit status 1 unless it succeeded.")
    ] = False,
    inline: Annotated[
        bool, typer.Option("--inline", metavar="", help="Big values themselves, not references to them.")
    ] = False,
    json_: JsonFlag = False,
) -> None:
    """Show a run: its steps, its result."""
    with output.client() as client:
        if wait:
            _await_end(client, run_id, json_=json_)
            return
        run = client.get(run_id, inline=inline)
    if json_:
        output.emit(run)
    else:
        run_tree.show(run, output.console(), now=datetime.now(UTC))


def runs(
    status: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME[=VALUE]", help="Only with this label.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
    json_: JsonFlag = False,
) -> None:
    """List runs, newest first."""
    with output.client() as client:
        listed = client.runs(status=status, workflow=workflow, tags=tag, page=min(limit, 200))
        found = list(islice(listed, limit))
    if json_:
        output.emit(found)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("", "id", "workflow", "status", "epoch", "created"):
        # People copy ids, so on a narrow terminal all other columns shrink.
        table.add_column(title, no_wrap=True, min_width=26 if title == "id" else None)
    for run in found:
        sign, style = run_tree.MARKS.get(run["status"], ("●", "cyan"))
        state = shown(run["status"] + (f" ({run['reason']})" if run["reason"] else ""))
        facts = (run["id"], run["workflow"], state, run["epoch"], run["created_at"])
        cells = [Text(shown(fact)) for fact in facts]
        cells[2].stylize(style)
        table.add_row(Text(sign, style), *cells)
    output.console().print(table)


def events(
    run_id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Go on until the run has ended.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only events with a higher number.")] = 0,
    json_: JsonFlag = False,
) -> None:
    """Print a run's events, one a line (with --json: one JSON object a line)."""
    console = output.console()
    with output.client() as client:
        told = client.events(run_id, after=after, follow=follow)
        if follow and console.is_terminal and not json_ and not after:
            run = client.get(run_id)
            client.retry_for_seconds = output.WATCHING_SECONDS
            _exhaust(run_progress.watch(told, console, run, look=_look(client, run_id), lines=True))
            run_tree.show(client.get(run_id), console, now=datetime.now(UTC))
            return
        for event in told:
            if follow:
                client.retry_for_seconds = output.WATCHING_SECONDS  # the API has answered before, so wait out an outage
            if json_:
                output.emit(event, indent=None)
            else:
                output.tell(run_progress.line(event))


def _await_end(client: Client, run_id: str, *, json_: bool) -> None:
    """Wait for a run's end, show its events, and exit with status 1 unless it succeeded."""
    try:
        _await(client, run_id, json_=json_)
    except KeyboardInterrupt:
        # The live view disappears, and with it the run's id.
        output.say(f"Run {run_id} goes on: fanfold show {run_id} --wait")
        raise


def _await(client: Client, run_id: str, *, json_: bool) -> None:
    client.retry_for_seconds = output.WATCHING_SECONDS
    if json_:
        run = client.wait(run_id)
        output.emit(run)
    else:
        run = client.get(run_id)
        if run["status"] not in TERMINAL:
            _exhaust(run_progress.watch(client.events(run_id), output.console(), run, look=_look(client, run_id)))
            run = client.wait(run_id)
        run_tree.show(run, output.console())
    if run["status"] != "succeeded":
        raise typer.Exit(output.RUN_FAILED)


def _exhaust(events: Iterable[object]) -> None:
    for _ in events:
        pass


def _look(client: Client, run_id: str) -> run_progress.Look:
    """Reads the progress of a run's maps."""

    def look(names: Sequence[str]) -> Mapping[str, MapProgress]:
        steps = client.get(run_id, steps=",".join(names), progress=True)["steps"]
        return {name: found for name, step in steps.items() if (found := step.get("map")) is not None}

    return look


def _tags(given: list[str]) -> dict[str, str]:
    tags = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise typer.BadParameter(f"--tag {text}: a label is NAME=VALUE")
        tags[name] = value
    return tags
