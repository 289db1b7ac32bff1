"""A project: `init` makes one, `dev` and `serve` run it as one process on one file, `lock` pins what it deploys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fanfold import project as projects
from fanfold.commands import output
from fanfold.commands.output import JsonFlag
from fanfold.local.local_stack import LocalError
from fanfold.project import Project

Port = Annotated[int, typer.Option(min=0, max=65535, help="The API's port; 0: any that is free.")]
Workers = Annotated[int, typer.Option(min=1, help="Worker processes, this one among them.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Runs at once in each process and class.")]
Depth = Annotated[int | None, typer.Option(min=0, help="Most runs of a class that may be queued; 0: any number.")]


def init(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The new project's folder; it is called so.")],
    json_: JsonFlag = False,
) -> None:
    """Make a project: a task, a workflow, a test, and a stack to deploy."""
    from fanfold.local import init as scaffold

    written = scaffold.create(folder)
    if json_:
        output.emit({"folder": str(folder.resolve()), "files": [str(path) for path in written]})
        return
    output.tell(f"{folder} has {len(written)} files. Next:")
    output.tell(f"  cd {folder} && pip install -e '.[dev]' && fanfold dev")


def lock(
    upgrade: Annotated[bool, typer.Option("--upgrade", metavar="", help="Take the newest versions there are.")] = False,
    find_links: Annotated[
        str | None, typer.Option(metavar="FOLDER|URL", help="Where else packages are, as uv takes it.")
    ] = None,
) -> None:
    """Pin the packages that the deployed functions need, from this project's dependencies."""
    from fanfold.local import lock as locking

    found = _project()
    locking.lock(found, upgrade=upgrade, more=[] if find_links is None else ["--find-links", find_links])
    output.tell(str(found.lock_file))


def dev(
    port: Port = 8700,
    workers: Workers = 1,
    concurrency: Concurrency = 100,
    max_queue_depth: Depth = None,
    fresh: Annotated[bool, typer.Option("--fresh", metavar="", help="Forget all runs there were before.")] = False,
) -> None:
    """Serve this project while you write it: changes of tasks and workflows take effect at once.

    API, workers and store are this one process; runs are kept in .fanfold and
    go on after a restart. Ctrl-C ends it.
    """
    _serve(port=port, workers=workers, concurrency=concurrency, max_queue_depth=max_queue_depth, fresh=fresh)


def serve(
    port: Port = 8700,
    host: Annotated[str, typer.Option(help="The address to listen on. There is no TLS: put a proxy before it.")] = (
        "127.0.0.1"
    ),
    workers: Workers = 1,
    concurrency: Concurrency = 100,
    max_queue_depth: Depth = None,
    database: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The SQLite file; default: .fanfold/fanfold.db.")
    ] = None,
) -> None:
    """Serve this project on one machine: the whole engine on one SQLite file, without AWS.

    Logs and metrics go to stdout, a JSON object a line. docs/single-node.md says
    what one machine promises and what it does not. SIGTERM ends it in order.
    """
    _serve(
        host=host,
        port=port,
        workers=workers,
        concurrency=concurrency,
        max_queue_depth=max_queue_depth,
        database=None if database is None else database.resolve(),
        watch=False,
    )


def _project() -> Project:
    try:
        found = projects.find(Path.cwd())
    except projects.ProjectError as error:
        raise LocalError(f"{error}.", status=2) from error
    if found is None:
        raise LocalError(
            "There is no project here: `fanfold init NAME` makes one, and a table [tool.fanfold] in its pyproject.toml"
            " makes any folder one.",
            status=2,
        )
    return found


def _serve(**given: object) -> None:
    from fanfold.local import dev
    from fanfold.service.process_environment import ProcessEnvironment
    from fanfold.service.worker.process import Exit

    found = _project()
    surroundings = ProcessEnvironment()
    ended = dev.run(found, dev.DevOptions(**given), report=output.say)  # type: ignore[arg-type]  # names and types match
    if ended is Exit.SPENT:
        os.chdir(surroundings.folder)
        arguments = [one for one in sys.argv[1:] if one != "--fresh"]
        os.execve(
            sys.executable,
            [sys.executable, "-m", "fanfold.commands.command_line", *arguments],
            dict(surroundings.environ),
        )
    os._exit(0)  # threads of tasks that would not stop keep no terminal waiting
