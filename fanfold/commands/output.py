"""How commands speak: results on stdout, everything about them on stderr, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fanfold import local
from fanfold.client import Client

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]

PATIENCE_SECONDS = 5.0
"""How long a command repeats a refused or unanswered call: somebody sits in front of it."""

PIPE_WIDTH = 240

RUN_FAILED = 1
"""The exit status when the command did its work and the run it waited for did not succeed."""


def console() -> Console:
    """For results. Made when asked, so that it writes to whatever stdout is by then."""
    # A pipe has no width of its own, and nothing may be cut off in it.
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def say(text: str) -> None:
    """Tell a person something that is no result."""
    print(text, file=sys.stderr, flush=True)


def emit(value: Any, *, indent: int | None = 2) -> None:
    """Print a result as JSON."""
    print(json.dumps(value, indent=indent, ensure_ascii=False), flush=True)


def client() -> Client:
    """A client for the API that the environment or `.fanfold/local.json` names."""
    url, token = local.target(os.environ, Path.cwd())
    return Client(url, token, patience_seconds=PATIENCE_SECONDS)


def state() -> Path:
    """The state folder of the project around the current folder."""
    return local.state_folder(Path.cwd())
