"""`fanfold dev` and `fanfold serve`: a project's tasks and workflows on one file, and (`dev`) again at each change."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from watchfiles import Change, awatch

from fanfold.cdk.classes import classes_of
from fanfold.cdk.type_checks import check_kinds
from fanfold.client.async_client import AsyncClient
from fanfold.client.errors import ApiError
from fanfold.local import deploy, local_stack, node
from fanfold.local.local_stack import LocalError, LocalStack
from fanfold.project import FILE as PROJECT_FILE
from fanfold.project import Project
from fanfold.service.bearer_tokens import SCOPES, matches, mint, parse
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import Services, services
from fanfold.service.worker.process import Exit
from fanfold.tasks import registry

Report = Callable[[str], None]

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8700
DEFAULT_CONCURRENCY: Final = 100
"""Runs at once of each class: a step that waits for a model costs a task, not a processor."""

DATABASE: Final = "fanfold.db"
TENANT: Final = deploy.TENANT
LEASE_SECONDS: Final = 15.0
SKEW_SECONDS: Final = 1.0
"""One machine has one clock: a killed process's runs go on sooner than where clocks may differ by seconds."""

WAITERS: Final = 2_000
"""Calls that may hold their answer back: here each costs a connection, not a sandbox."""

_LOCAL_MAPS: Final = "local"
"""Where a class has a state machine on AWS: batches of wide maps are worked on in this process."""

_IGNORED: Final = frozenset({".venv", "venv", "node_modules", "__pycache__", "cdk.out", "build", "dist"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What the command line says. `workers` are processes, this one among them; None: as the project says."""

    host: str = HOST
    port: int = DEFAULT_PORT
    workers: int = 1
    concurrency: int = DEFAULT_CONCURRENCY
    max_queue_depth: int | None = None
    fresh: bool = False
    watch: bool = True
    database: Path | None = None


def run(project: Project, options: DevOptions, *, report: Report) -> Exit:
    """Serve the project until told to stop. Raises `LocalError` with one sentence.

    `SPENT`: the process must begin anew in a new program image, for a task would not stop or the settings changed.
    """
    state = project.folder / local_stack.STATE_FOLDER
    if (up := deploy.running(state)) is not None:
        raise LocalError(
            f"A local AWS stack of this project is up at {up.endpoint}: `fanfold down` stops it.", status=2
        )
    local_stack.make(state)
    with local_stack.serving(state):
        return _serve(project, options, state, report)


def settings_of(project: Project, options: DevOptions, *, state: Path, url: str) -> Settings:
    """The settings of a project's deployment on one file. Raises `LocalError` naming what is wrong with them."""
    known = {f.name for f in fields(Settings)} - {"table", "bucket", "classes", "task_modules", "database"}
    if unknown := sorted(set(project.settings) - known):
        raise LocalError(f"{project.folder / PROJECT_FILE}: settings: there is no {unknown[0]!r}.", status=2)
    try:
        check_kinds(project.settings, Settings)
        given: dict[str, Any] = {
            "lease_seconds": LEASE_SECONDS,
            "clock_skew_seconds": SKEW_SECONDS,
            "concurrency": options.concurrency,
            "max_waiters": WAITERS,
            "max_watchers": WAITERS,
            "log_format": "text" if options.watch else "json",
            "chaos": options.watch,
            "ledger": str(state / "ledger.jsonl"),
            **project.settings,
        }
        return Settings(
            database=str(options.database or state / DATABASE),
            public_url=url,
            task_modules=project.tasks,
            classes=_classes(project.classes, options.max_queue_depth),
            **given,
        )
    except ValueError as error:
        raise LocalError(f"{project.folder / PROJECT_FILE}: {error}.", status=2) from error


def _classes(given: Mapping[str, Any], max_queue_depth: int | None) -> dict[str, ClassSettings]:
    """The classes of workers, as they are deployed to AWS, without what belongs to functions."""
    configs = classes_of(given or {"model": {}}, defaults={}, local=False)
    return {
        name: ClassSettings(
            lanes=tuple(config.lanes),
            max_queue_depth=config.max_queue_depth if max_queue_depth is None else max_queue_depth,
            max_step_seconds=config.max_step_seconds,
            state_machine=_LOCAL_MAPS,
            max_item_seconds=config.item_seconds,
            map_concurrency=config.map_concurrency or 0,
        )
        for name, config in configs.items()
    }


def _serve(project: Project, options: DevOptions, state: Path, report: Report) -> Exit:
    try:
        listener = node.listen(options.host, options.port)
    except OSError as error:
        raise LocalError(
            f"Port {options.port} of {options.host} can't be used ({error.strerror}): choose another with --port.",
            status=2,
        ) from error
    url = f"http://{options.host}:{listener.getsockname()[1]}"
    settings = settings_of(project, options, state=state, url=url)
    if options.fresh:
        for name in (settings.database, f"{settings.database}-wal", f"{settings.database}-shm", settings.ledger):
            Path(name).unlink(missing_ok=True)
    sys.path[:0] = [str(project.folder)]
    sys.dont_write_bytecode = True  # a file that changes twice within a second has the same time in its cache
    try:
        wired = services(settings)
    except Exception as error:
        raise LocalError(f"{error}.") from error
    run = _Session(project, options, settings, wired, url, state, report)
    # Not asyncio.run: a task that can't be stopped would keep the process.
    return asyncio.Runner().run(run.serve(listener))


class _Session:
    """One start of the node until its end."""

    def __init__(
        self,
        project: Project,
        options: DevOptions,
        settings: Settings,
        wired: Services,
        url: str,
        state: Path,
        report: Report,
    ) -> None:
        self._project = project
        self._options = options
        self._settings = settings
        self._wired = wired
        self._url = url
        self._state = state
        self._report = report
        self._token = ""
        self._changed = False
        self._watching: asyncio.Task[None] | None = None
        self._node = node.Node(settings, more_workers=options.workers - 1)

    async def serve(self, listener: Any) -> Exit:
        """Serve until told to stop."""
        try:
            ended = await self._node.serve(listener, ready=self._begin)
        finally:
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)
        return Exit.SPENT if self._changed else ended

    async def _begin(self) -> None:
        self._token = await self._usable_token()
        local_stack.write(self._state, self._described())
        self._report(f"Fanfold is at   {self._url}   (its documentation at {self._url}/docs)")
        self._report(f"The project is  {self._project.folder}")
        self._report(f"Its state is in {self._settings.database}")
        self._tell_tasks(registry.broken())
        await self._apply()
        if self._options.watch:
            self._watching = asyncio.create_task(self._watch())

    def _described(self) -> LocalStack:
        return LocalStack(
            api_url=self._url,
            token=self._token,
            endpoint="",
            region="",
            table="",
            bucket="",
            stack="dev",
            ledger=self._settings.ledger,
            env=self._settings.to_env(),
        )

    async def _usable_token(self) -> str:
        """The token there was, if it still works: its text and URL stay the same over restarts."""
        known = local_stack.read(self._state)
        parsed = parse(known.token) if known is not None else None
        if known is not None and parsed is not None:
            stored = await self._wired.tokens.get(parsed[0])
            if stored is not None and stored.revoked_at is None and matches(stored, parsed[1]):
                return known.token
        text, token = mint(
            tenant=TENANT,
            owner="fanfold dev",
            scopes=SCOPES,
            now=self._wired.clock.now(),
            draw=secrets.token_bytes,
        )
        await self._wired.tokens.put(token)
        return text

    async def _apply(self) -> None:
        """Register every workflow; one that is wrong costs no other, and its last good version stays."""
        applied: list[str] = []
        async with AsyncClient(self._url, self._token) as client:
            for path in self._project.workflow_files():
                try:
                    applied.append((await client.apply(path.read_bytes()))["name"])
                except (ApiError, ValueError, OSError) as error:
                    self._report(f"{path.relative_to(self._project.folder)} is not applied: {_reasons(error)}")
        self._report(f"Workflows       {', '.join(applied) or 'none'}")

    def _tell_tasks(self, broken: Sequence[registry.BrokenModule]) -> None:
        own = sorted(name for name in registry.names() if registry.find(name).module.partition(".")[0] != "fanfold")
        self._report(f"Tasks           {', '.join(own) or 'only those that come with Fanfold'}")
        for module in broken:
            self._report(f"{module.trace.rstrip()}\n{module.name} can't be imported: what it was before stays.")

    async def _watch(self) -> None:
        async for changes in awatch(
            self._project.folder, watch_filter=_is_of_interest, debounce=200, step=50, raise_interrupt=False
        ):
            paths = {Path(path) for _, path in changes}
            if self._project.folder / PROJECT_FILE in paths:
                self._report(f"{PROJECT_FILE} has changed: beginning anew.")
                self._changed = True
                self._node.stop()
                return
            if any(path.suffix == ".py" for path in paths):
                # In a thread: what is imported may take its time, and runs go on.
                broken = await asyncio.to_thread(registry.reload, self._project.folder)
                self._report(f"Reloaded after a change of {_named(paths, self._project.folder)}.")
                self._tell_tasks(broken)
                self._node.replace_processes()
            await self._apply()


def _is_of_interest(change: Change, path: str) -> bool:
    parts = Path(path).parts
    return Path(path).suffix in (".py", ".yaml", ".yml", ".json", ".toml") and not any(
        part in _IGNORED or part.startswith(".") for part in parts
    )


def _named(paths: set[Path], folder: Path) -> str:
    names = sorted(str(path.relative_to(folder)) for path in paths)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _reasons(error: Exception) -> str:
    """Why a document was refused: a line for each of several reasons."""
    reasons = [f"{one.get('pointer') or '/'}: {one.get('detail', '')}" for one in getattr(error, "errors", ())]
    return "\n  ".join([getattr(error, "title", "wrong"), *reasons]) if reasons else str(error)
