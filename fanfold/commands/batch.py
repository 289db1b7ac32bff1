"""`fanfold submit --batch FILE`: many runs from a file of JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from fanfold.client.results import BatchResult, Refusal
from fanfold.client.sync_client import Client
from fanfold.commands import output
from fanfold.commands.given import text_of
from fanfold.engine.payload import parse
from fanfold.text.printable import shown


def submit(client: Client, file: str, *, workflow: str | None, key: str | None, json_: bool) -> None:
    """Submit every line of a file. Prints the ids of accepted runs in order, and errors on stderr.

    Exit status 3: runs were throttled. 4: the service failed. 2: runs are wrong.
    """
    lines = _read(file, workflow)
    results = client.submit_many([run for _, run in lines], key=key)
    if json_:
        output.emit(results)
    else:
        for (number, _), result in zip(lines, results, strict=True):
            if "run" in result:
                output.tell(shown(result["run"]["id"]))
            else:
                output.say(f"line {number}: {_told(result['problem'])} (HTTP {result['status']})")
    status = _status(results)
    if status:
        raise typer.Exit(status)


def _read(file: str, workflow: str | None) -> Sequence[tuple[int, Mapping[str, Any]]]:
    """The runs with the numbers of their lines; empty lines are skipped. Raises `typer.BadParameter`."""
    text = text_of(file, "--batch")
    # Not splitlines(): JSON may hold line separators other than the newline.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return [(number, _run(number, line, workflow)) for number, line in lines]


def _run(number: int, line: str, workflow: str | None) -> Mapping[str, Any]:
    try:
        run = parse(line)
    except ValueError as error:
        raise typer.BadParameter(f"--batch: line {number} is not JSON: {shown(error)}") from error
    if not isinstance(run, dict):
        raise typer.BadParameter(f'--batch: line {number} is no run: {{"workflow": …, "input": …}}')
    named: dict[str, Any] = {} if workflow is None else {"workflow": workflow}
    return {**named, **run}


def _told(problem: Refusal) -> str:
    reasons = "; ".join(f"{error.get('pointer') or '/'}: {error['detail']}" for error in problem.get("errors", []))
    return shown(f"{problem['title']}: {reasons or problem['detail']}")


def _status(results: Sequence[BatchResult]) -> int:
    """The exit status of the worst result."""
    statuses = {result["status"] for result in results}
    if any(status >= 500 for status in statuses):
        return output.NOT_REACHABLE
    if 429 in statuses:
        return output.REFUSED
    return output.USAGE if any(status >= 400 for status in statuses) else 0
