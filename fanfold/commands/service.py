"""`worker`, `token create|list|revoke` and `remove`."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fanfold.commands import output
from fanfold.commands.output import JsonFlag
from fanfold.local import deploy, local_stack, metrics_tee, tokens
from fanfold.local.local_stack import LocalError
from fanfold.text.printable import shown

if TYPE_CHECKING:
    from fanfold.engine.ports import Token

token = typer.Typer(help="Make, list and revoke tokens (with AWS credentials).", no_args_is_help=True)

StackName = Annotated[str | None, typer.Option("--stack", help="The deployed stack; default: the local one.")]


def worker(
    class_: Annotated[str, typer.Option("--class", help="The class of runs to work on.")] = "model",
    concurrency: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 32,
    lanes: Annotated[str | None, typer.Option(help="Comma-separated, best first; default: all of the class.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="An AWS endpoint other than the deployment's.")] = None,
    json_: JsonFlag = False,
) -> None:
    """Work on runs as a process; SIGTERM lets it finish or hand over what it has.

    Logs and metrics go to stdout, a JSON object a line; what is for a person goes to stderr.
    """
    environ = _worker_environment(endpoint)
    os.environ.update(environ)  # boto3 reads the process's environment and nothing else
    if "AWS_PROFILE" not in environ:
        os.environ.pop("AWS_PROFILE", None)
    from fanfold.service.process_environment import ProcessEnvironment
    from fanfold.service.settings import Settings
    from fanfold.service.worker.process import Exit, check, serve

    try:
        settings = Settings.from_env(environ)
        chosen = tuple(lanes.split(",")) if lanes else None
        check(settings, class_name=class_, lanes=chosen, concurrency=concurrency)
        known = local_stack.read(output.state())
        if known is not None and not known.on_file:
            metrics_tee.begin(output.state())
        facts = {"class": class_, "lanes": chosen, "concurrency": concurrency, "pid": os.getpid()}
        if json_:
            output.emit(facts, indent=None)
        else:
            output.say(f"Worker {os.getpid()}: class {class_}, {concurrency} runs at once.")
        surroundings = ProcessEnvironment()
        ended = serve(settings, class_name=class_, lanes=chosen, concurrency=concurrency)
    except ValueError as error:
        raise LocalError(f"{error}.", status=2) from error
    # Tasks may have closed a stream or changed folder or environment; the process must end all the same.
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
    if ended is Exit.SPENT:
        # Replacing the program image ends a task that can't be stopped; the worker continues in the new one.
        with contextlib.suppress(ValueError, OSError):
            output.say("A task would not stop: the worker starts anew.")
        os.chdir(surroundings.folder)
        os.execve(
            sys.executable,
            [sys.executable, "-m", "fanfold.commands.command_line", *sys.argv[1:]],
            dict(surroundings.environ),
        )
    os._exit(0)  # Python would wait seconds for threads of open polls


def _worker_environment(endpoint: str | None) -> dict[str, str]:
    environ = dict(os.environ) | ({"AWS_ENDPOINT_URL": endpoint} if endpoint else {})
    stack = local_stack.read(output.state())
    if stack is not None:
        return stack.environment(environ)
    if not environ.get("FANFOLD_TABLE"):
        raise LocalError("A worker needs a deployment: FANFOLD_… variables, or a local stack (`fanfold up`).", status=2)
    return environ


@token.command("create")
def create(
    stack: StackName = None,
    tenant: Annotated[
        str | None, typer.Option(help="Whose runs it sees; default: `local` on the local stack, else `default`.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Who has it; default: you.")] = None,
    scope: Annotated[list[str] | None, typer.Option(help="submit, read, operate or admin; default: all.")] = None,
    max_lane: Annotated[str | None, typer.Option(help="The best lane its runs may take; default: any.")] = None,
    max_priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="The highest priority of its runs; default: any.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="It works so long, e.g. `90d`, at most a year; default: for ever."),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Make a token; its text is shown this once.

    An expired one may work up to five minutes longer, as API Gateway remembers
    it, and is deleted from the table a month later.
    """
    text, token = tokens.create(
        _deployment(stack),
        tenant=tenant or ("default" if stack or local_stack.read(output.state()) is None else deploy.TENANT),
        owner=owner or getpass.getuser(),
        scopes=frozenset(scope) if scope else tokens.ALL_SCOPES,
        max_lane=max_lane,
        max_priority=max_priority,
        expires=expires,
        now=_now(),
        draw=secrets.token_bytes,
    )
    if json_:
        output.emit({"token": text, **_shown(token)})
    else:
        output.tell(text)


@token.command("list")
def list_(stack: StackName = None, json_: JsonFlag = False) -> None:
    """List tokens: whose, what for, since when; never the secrets."""
    from fanfold.engine.errors import Unreadable

    found: list[dict[str, Any]] = []
    for token in tokens.list_all(_deployment(stack)):
        if isinstance(token, Unreadable):
            output.say(f"A token can't be read: {token}.")
        else:
            found.append(_shown(token))
    if json_:
        output.emit(found)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("id", "tenant", "owner", "scopes", "lanes", "created", "expires", "revoked"):
        table.add_column(title)
    for one in found:
        scopes = ", ".join(one["scopes"])
        table.add_row(
            *(Text(shown(cell)) for cell in (one["id"], one["tenant"], one["owner"], scopes, _bounds(one))),
            *(one["created_at"], one["expires_at"] or "never", one["revoked_at"] or ""),
        )
    output.console().print(table)


@token.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id (the part after `ff_`).")],
    stack: StackName = None,
    json_: JsonFlag = False,
) -> None:
    """Revoke a token; API Gateway may let it pass for up to five minutes more."""
    token = _shown(tokens.revoke(_deployment(stack), token_id, now=_now()))
    if json_:
        output.emit(token)
    else:
        output.tell(f"{token['id']} of {shown(token['owner'])} is revoked; it may work up to five minutes longer.")


def remove(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run.")],
    tenant: Annotated[str, typer.Option(help="Whose run it is.")],
    stack: StackName = None,
) -> None:
    """Remove a run whose record can't be read any more.

    Needs AWS credentials. A record that can be read is never touched: cancel
    that run instead. The sweeper repairs its queue slot within hours;
    its payloads expire by themselves.
    """
    tokens.remove_run(_deployment(stack), tenant, run_id)
    output.tell(f"{run_id} of {tenant} is removed.")


def _deployment(stack_name: str | None) -> dict[str, str]:
    return tokens.environment_of(stack_name, local_stack.read(output.state()), os.environ)


def _bounds(token: dict[str, Any]) -> str:
    lane, priority = token["max_lane"], token["max_priority"]
    bounds = ([] if lane is None else [f"up to {lane}"]) + ([] if priority is None else [f"up to {priority}"])
    return ", ".join(bounds) or "any"


def _now() -> datetime:
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)  # stored times have milliseconds


def _shown(token: Token) -> dict[str, Any]:
    shown = {name: value for name, value in asdict(token).items() if name != "sha256"}
    times = {
        name: value.isoformat(timespec="milliseconds") for name, value in shown.items() if isinstance(value, datetime)
    }
    return {**shown, **times, "scopes": sorted(token.scopes)}
