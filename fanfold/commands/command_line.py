"""`fanfold`, the command line: its commands, and what each failure means as an exit status.

0 done · 1 the run failed · 2 usage, or a request the service finds wrong · 3 refused for load (429) ·
4 not reachable, not a Fanfold API, or not able to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from fanfold.client.errors import NotFanfold, NotReachable, Problem, Refused, ServiceFailure
from fanfold.commands import control, dashboard, doctor, explore, output, queues, runs, serve, service, stack
from fanfold.local.local_stack import LocalError
from fanfold.service.version import VERSION
from fanfold.text.printable import shown

app = typer.Typer(
    help="Durable multi-step runs on AWS without servers.",
    epilog="Exit statuses: 0 done, 1 the run failed, 2 usage or a wrong request, 3 refused for load, 4 not reachable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_PANELS = {
    "A project": (serve.dev, serve.serve),
    "A local stack": (stack.up, stack.down, stack.demo),
    "Workflows and runs": (runs.apply, runs.submit, runs.show, runs.runs, runs.events, explore.explore),
    "A run in your hands": (
        control.cancel,
        control.pause,
        control.resume,
        control.signal,
        control.redrive,
        control.fork,
    ),
    "A deployment": (queues.queues, dashboard.dashboard, doctor.doctor, service.worker, service.remove),
}
"""The commands as `--help` groups them."""

for panel, commands in _PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(service.token_app, name="token", rich_help_panel="A deployment")


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


@app.callback()
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
        status = app(args=given, prog_name="fanfold", standalone_mode=not json_)
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
