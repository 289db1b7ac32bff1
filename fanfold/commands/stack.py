"""The local stack: `up`, `down`, `demo`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fanfold import project
from fanfold.commands import output, run_tree
from fanfold.commands.demo import demonstrate
from fanfold.commands.output import JsonFlag
from fanfold.local import deploy, local_stack
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import LocalError, LocalStack


def up(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"The emulator's port (default {deploy.DEFAULT_PORT}).")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(help="Deploy to this emulator instead of starting one; default: AWS_ENDPOINT_URL, if set."),
    ] = None,
    api: Annotated[str, typer.Option(metavar="http|rest", help="The flavour of the API.")] = "http",
    workers: Annotated[
        str, typer.Option(metavar="lambda|none", help="Who executes runs; none: `fanfold worker`.")
    ] = "lambda",
    max_queue_depth: Annotated[
        int | None, typer.Option(min=0, help="Most runs that may be queued; 0: any number.")
    ] = None,
    fair_queues: Annotated[
        bool,
        typer.Option(
            "--fair-queues/--no-fair-queues",
            help="Send each tenant's messages in a group of its own, which LocalStack before 4.7 refuses.",
        ),
    ] = True,
    json_: JsonFlag = False,
) -> None:
    """Start the AWS emulator, deploy into it, make a token, apply the examples. Safe to repeat."""
    if workers not in ("lambda", "none"):
        raise typer.BadParameter("--workers is lambda or none")
    if api not in ("http", "rest"):
        raise typer.BadParameter("--api is http or rest")
    if port is not None and endpoint is not None:
        raise typer.BadParameter("--port is the port of an emulator to start, --endpoint one that runs: not both")
    if port is None and endpoint is None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL") or None
    _end_in_order()
    options = Options(
        project=_project(),
        port=port,
        endpoint=endpoint,
        api=api,
        workers=workers,
        max_queue_depth=max_queue_depth,
        settings=None if fair_queues else {"fair_queues": False},
    )
    stack = deploy.up(options, state=output.state(), environ=os.environ, report=output.say)
    if json_:
        output.tell(deploy.as_json(stack))
        return
    output.tell(f"\nThe API is at      {stack.api_url}")
    output.tell(f"Its documentation  {stack.api_url}/docs")
    output.tell(f"All about it is in {output.state() / 'local.json'}")
    first = ("worker",) if workers == "none" else ()
    next_commands(*first, f"submit {_example(options.project)} --wait", "runs", "down")


def down(json_: JsonFlag = False) -> None:
    """Stop what `up` started; a stack in somebody else's emulator is only forgotten."""
    if (known := _known(output.state())) is not None and known.on_file:
        raise LocalError(f"`fanfold dev` serves this project at {known.api_url}: Ctrl-C there ends it.", status=2)
    others = known.endpoint if known is not None and known.pid is None else None
    stopped = deploy.down(state=output.state())
    if json_:
        output.emit({"stopped": stopped})
    elif others is not None:
        output.tell(f"Forgotten. The stack stays in the emulator at {others}, which was not started here.")
    else:
        output.tell("Stopped." if stopped else "Nothing was up.")


def _known(state: Path) -> LocalStack | None:
    """The stack in the state folder; None for an unreadable file, which `down` removes too."""
    try:
        return local_stack.read(state)
    except LocalError:
        return None


def demo(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port, if the stack is not up yet.")] = None,
    json_: JsonFlag = False,
) -> None:
    """Bring the stack up, run a diamond, kill the process that works on it, watch it finish all the same."""
    _end_in_order()
    stack = deploy.running(output.state()) or deploy.elsewhere(output.state())
    if stack is None:
        stack = deploy.up(
            Options(project=_project(), port=port), state=output.state(), environ=os.environ, report=output.say
        )
    outcome = demonstrate(stack, report=output.say if json_ else output.tell)
    run = outcome.run
    if json_:
        output.emit(asdict(outcome))
        return
    run_tree.show(run, output.console())
    counts = ", ".join(f"{step} {times}" for step, times in outcome.executions.items())
    output.tell(f"\nProcess {outcome.killed_pid} was killed; {outcome.seconds_from_kill} s later the run had ended.")
    output.tell(f"epoch: {run['epoch']} (claimed twice); executions of each step by the ledger: {counts}")
    next_commands(f"events {run['id']}", "submit diamond --wait", "down")


def _project() -> Path:
    """The project around the current folder, else the checkout of this library."""
    try:
        found = project.find(Path.cwd())
    except project.ProjectError as error:
        raise LocalError(f"{error}.", status=2) from error
    return local_stack.CHECKOUT if found is None else found.folder


def _example(folder: Path) -> str:
    """The name of an example workflow to submit."""
    names = [path.stem for path in project.at(folder).workflow_files()]
    return next((name for name in ("diamond", *names) if name in names), "WORKFLOW")


def next_commands(*commands: str) -> None:
    """Print the next commands, ready to be copied."""
    program = _program()
    for number, command in enumerate(commands):
        output.tell(f"{'' if number else 'Next:':<18} {program} {command}")


def _program() -> str:
    """How to call this command line: by its name if it is on the PATH, else by its path."""
    itself = Path(sys.executable).with_name("fanfold")
    found = shutil.which("fanfold")
    if not itself.is_file() or (found is not None and Path(found).resolve() == itself.resolve()):
        return "fanfold"
    return str(itself.relative_to(Path.cwd()) if itself.is_relative_to(Path.cwd()) else itself)


def _end_in_order() -> None:
    """Turn SIGTERM into an exception like Ctrl-C, so that started processes are stopped."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
