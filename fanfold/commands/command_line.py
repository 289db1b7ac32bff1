"""`fanfold`, the command line: its commands, and what each failure means as an exit status.

0 done · 1 the run failed · 2 usage, or a request the service finds wrong · 3 refused for load (429) ·
4 not reachable, not a Fanfold API, or not able to.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

from fanfold.client.errors import NotFanfold, NotReachable, Problem, Refused, ServiceFailure
from fanfold.commands import output
from fanfold.local.local_stack import LocalError
from fanfold.service.version import VERSION
from fanfold.text.printable import shown

_STATUSES = "Exit statuses: 0 done, 1 the run failed, 2 usage or a wrong request, 3 refused for load, 4 not reachable."

_PANELS: Mapping[str, Mapping[str, str]] = {
    "A project": {"init": "project", "dev": "project", "lock": "project", "serve": "project"},
    "A local stack": {"up": "stack", "down": "stack", "demo": "stack"},
    "Workflows and runs": {
        "apply": "runs",
        "submit": "runs",
        "show": "runs",
        "runs": "runs",
        "events": "runs",
        "explore": "explore",
    },
    "A run in your hands": dict.fromkeys(("cancel", "pause", "resume", "signal", "redrive", "fork"), "control"),
    "A deployment": {
        "queues": "queues",
        "dashboard": "dashboard",
        "doctor": "doctor",
        "worker": "service",
        "remove": "service",
        "token": "service",
    },
}
"""The commands as `--help` groups them, and the module of each, which is loaded when the command is asked for."""

_EXTRAS = {
    **dict.fromkeys(("boto3", "botocore", "jmespath", "aws_lambda_powertools"), "service"),
    **dict.fromkeys(("uvicorn", "watchfiles"), "serve"),
    **dict.fromkeys(("aws_cdk", "constructs", "cdk_nag"), "cdk"),
    "ministack": "local",
}
"""Modules that the client alone does not bring, and the extra that does."""


def _version(asked: bool) -> None:
    if asked:
        output.tell(f"fanfold {VERSION}")
        raise typer.Exit


def app(given: Sequence[str]) -> typer.Typer:
    """The application for these words: with the command they begin with, or with all when they begin with none."""
    made = typer.Typer(
        help="Durable multi-step runs on AWS without servers.",
        epilog=_STATUSES,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    made.callback()(fanfold)
    wanted = next(iter(given), None)
    known = any(wanted in commands for commands in _PANELS.values())
    for panel, commands in _PANELS.items():
        for name, module in commands.items():
            if known and name != wanted:
                continue
            command = getattr(import_module(f"fanfold.commands.{module}"), name)
            if isinstance(command, typer.Typer):
                made.add_typer(command, name=name, rich_help_panel=panel)
            else:
                made.command(name, rich_help_panel=panel)(command)
    return made


def fanfold(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable multi-step runs on AWS without servers."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit status.

    Every failure is one sentence on stderr (and a line for each of several reasons), or with `--json` a
    problem: an object of one line, as the API answers.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    json_ = "--json" in given
    try:
        return _run(given, json_=json_)
    except LocalError as error:
        kind = "usage" if error.status == output.USAGE else "local-stack"
        output.complain({"type": kind, "title": "Not done", "detail": str(error)}, str(error), json_=json_)
        return error.status
    except NotReachable as error:
        said = f"{error}{output.way_out()}"
        told = {"type": "not-reachable", "title": "Not reachable", "detail": said}
        output.complain(told, f"Not reachable: {said}", json_=json_)
        return output.NOT_REACHABLE
    except NotFanfold as error:
        told = {"type": "not-fanfold", "title": "Not a Fanfold API", "detail": str(error)}
        output.complain(told, f"Not a Fanfold API: {error}", json_=json_)
        return output.NOT_REACHABLE
    except Problem as error:
        sentence, status = _meaning(error)
        output.complain(error.content(), sentence, json_=json_)
        return status
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        detail = f"This command needs more than the client: pip install 'fanfold[{extra}]'."
        output.complain({"type": "not-installed", "title": "Not installed", "detail": detail}, detail, json_=json_)
        return output.USAGE
    except KeyboardInterrupt:
        return output.INTERRUPTED


def _run(given: list[str], *, json_: bool) -> int:
    try:
        # Typer draws a box around a wrong word; a program that asked for JSON can't read that.
        status = app(given)(args=given, prog_name="fanfold", standalone_mode=not json_)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1 if leaving.code else 0
    except TyperException as error:
        told = {"type": "usage", "title": "Wrong usage", "detail": error.format_message()}
        output.complain(told, error.format_message(), json_=json_)
        return error.exit_code
    return status if isinstance(status, int) else 0


def _meaning(error: Problem) -> tuple[str, int]:
    """A problem as a sentence, and as an exit status."""
    match error:
        case Refused(retry_after_seconds=when):
            return f"Refused: {shown(error)}" + (f" (again in {when:g} s)" if when is not None else ""), output.REFUSED
        case ServiceFailure():
            return f"The service failed (HTTP {error.status}): {shown(error)}", output.NOT_REACHABLE
        case _:
            return _told(error), output.USAGE


def _told(error: Problem) -> str:
    about = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
    if len(error.errors) < 2:
        return f"{about}{shown(error)} (HTTP {error.status})"
    reasons = (shown(f"{reason.get('pointer') or '/'}: {reason.get('detail', '')}") for reason in error.errors)
    return "\n  ".join([f"{about}{shown(error.title)} (HTTP {error.status}):", *reasons])


if __name__ == "__main__":
    sys.exit(main())
