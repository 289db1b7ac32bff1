"""The output of commands: results on stdout, messages on stderr, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from fanfold.client.base_client import check_address
from fanfold.client.sync_client import Client
from fanfold.local import local_stack
from fanfold.text.printable import shown_json, shown_lines

JsonFlag = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as JSON, for programs.")]

RETRY_SECONDS = 5.0
"""Seconds for which a command repeats a throttled or unanswered call while a person waits."""

WATCHING_SECONDS = 60.0
"""The same for a command that watches, after its first answer: it loses nothing by waiting."""

PIPE_WIDTH = 240

USAGE = 2
REFUSED = 3
NOT_REACHABLE = 4
INTERRUPTED = 130
"""Exit statuses: a request the service finds wrong, one refused for load, one it could not serve, Ctrl-C."""

RUN_FAILED = 1
"""The exit status when the command did its work and the run it waited for did not succeed."""


class _Console(Console):
    """A console that shows data, never markup or control characters.

    Plain strings are escaped before layout, everything else when it is shown.
    """

    def render_str(self, text: str, **given: Any) -> Text:
        return super().render_str(shown_lines(text), **given)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown_lines(segment.text), segment.style)


def console() -> Console:
    """The console for results. It is created at each use, so that it writes to the current stdout."""
    # A pipe has no width of its own, and nothing may be cut off in it.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return _Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)


def tell(text: str) -> None:
    """Print a result, or a line of one, for a person."""
    print(shown_lines(text), flush=True)


def say(text: str) -> None:
    """Print a message for a person on stderr."""
    print(shown_lines(text), file=sys.stderr, flush=True)


def complain(problem: Mapping[str, Any], sentence: str, *, json_: bool) -> None:
    """Print an error on stderr: a sentence, or (`json_`) the problem as one line of JSON."""
    say(shown_json(json.dumps(problem, ensure_ascii=False)) if json_ else sentence)


def emit(value: Any, *, indent: int | None = 2) -> None:
    """Print a result as JSON."""
    print(shown_json(json.dumps(value, indent=indent, ensure_ascii=False)), flush=True)


def client() -> Client:
    """A client for the API that the environment or `.fanfold/local.json` names."""
    url, token = local_stack.target(os.environ, Path.cwd())
    try:
        check_address(url)
    except ValueError as error:
        raise local_stack.LocalError(f"FANFOLD_URL: {error}.", status=USAGE) from error
    try:
        return Client(url, token, retry_for_seconds=RETRY_SECONDS)
    except ValueError as error:
        raise local_stack.LocalError(f"FANFOLD_TOKEN: {error}.", status=USAGE) from error


def way_out() -> str:
    """Advice for an API that does not answer, if this project's state has one."""
    if os.environ.get("FANFOLD_URL"):
        return ""
    try:
        known = local_stack.read(state())
    except local_stack.LocalError:
        return ""
    if known is None:
        return ""
    return (
        "; if the local stack has died, `fanfold up` makes a new one"
        if not known.on_file
        else "; `fanfold dev` serves this project"
    )


def aws_stack(named: str | None) -> local_stack.LocalStack | None:
    """The local AWS stack, if there is one.

    Raises `LocalError` where it is asked for (`named` is None or `local`) and the project is served without one.
    """
    known = local_stack.read(state())
    if known is None or not known.on_file:
        return known
    if named not in (None, "local"):
        return None
    raise local_stack.LocalError(
        "This project is served by `fanfold dev`, without AWS: name a deployed stack with --stack,"
        " or start a local one with `fanfold up`.",
        status=USAGE,
    )


def state() -> Path:
    """The state folder of the project around the current folder."""
    return local_stack.state_folder(Path.cwd())
