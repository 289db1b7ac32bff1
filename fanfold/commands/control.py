"""An operator's commands: `cancel`, `pause`, `resume`, `signal`, `redrive`, `fork`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fanfold.client.calls import UNCHANGED
from fanfold.client.results import Run
from fanfold.client.sync_client import Client
from fanfold.commands import output
from fanfold.commands.given import json_of
from fanfold.commands.keys import Key
from fanfold.commands.output import JsonFlag
from fanfold.commands.runs import RunId
from fanfold.text.printable import shown


def cancel(run_id: RunId, json_: JsonFlag = False) -> None:
    """Cancel a run; prints its status. What runs is told to stop and has ended within seconds."""
    _operate(lambda client: client.cancel(run_id), json_=json_)


def pause(run_id: RunId, json_: JsonFlag = False) -> None:
    """Start no new step of a run, and let its deadlines stand still; prints its status."""
    _operate(lambda client: client.pause(run_id), json_=json_)


def resume(run_id: RunId, json_: JsonFlag = False) -> None:
    """Let a paused run go on; prints its status."""
    _operate(lambda client: client.resume(run_id), json_=json_)


def redrive(run_id: RunId, key: Key = None, json_: JsonFlag = False) -> None:
    """Let a failed or cancelled run go on from there; prints its status."""
    _operate(lambda client: client.redrive(run_id, key=key), json_=json_)


def signal(
    run_id: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.")],
    payload: Annotated[str, typer.Argument(metavar="JSON|@FILE", help="What it says; @- reads stdin.")] = "null",
    key: Key = None,
    json_: JsonFlag = False,
) -> None:
    """Give a run a signal; prints the number of its event."""
    with output.client() as client:
        receipt = client.signal(run_id, name, json_of(payload, "JSON"), key=key)
    if json_:
        output.emit(receipt)
    else:
        output.tell(shown(receipt["seq"]))


def fork(
    run_id: RunId,
    from_step: Annotated[str, typer.Option("--from", metavar="STEP", help="It and all downstream of it runs anew.")],
    input_: Annotated[
        str | None, typer.Option("--input", metavar="JSON|@FILE", help="Another input; @- reads stdin.")
    ] = None,
    version: Annotated[str | None, typer.Option(help="Another version of the workflow.")] = None,
    key: Key = None,
    json_: JsonFlag = False,
) -> None:
    """Start a new run that takes over what an old one has done; prints its id."""
    value = UNCHANGED if input_ is None else json_of(input_, "--input")
    with output.client() as client:
        accepted = client.fork(run_id, from_step, input=value, version=version, key=key)
    if json_:
        output.emit(accepted)
    else:
        output.tell(shown(accepted["id"]))


def _operate(operation: Callable[[Client], Run], *, json_: bool) -> None:
    with output.client() as client:
        run = operation(client)
    if json_:
        output.emit(run)
    else:
        output.tell(shown(run["status"]))
