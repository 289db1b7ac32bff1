"""The tasks a step can call: functions under a name, registered by a decorator.

    @task("mail.send")
    async def send(input: Json, ctx: Context) -> Json: ...

A task is an `async` function, which runs on the worker's event loop and must not block it, or a
plain one, which runs in a thread of its own. It takes the step's input, and if it wants the
`Context` beside it. Every module below `functions/tasks` is imported once, when a name is first asked for. One that
can't be imported costs its own tasks: they are `NotLoaded`, all others are there.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fanfold.engine.errors import NotFound

PACKAGES = ("fanfold.tasks", "functions.tasks")
"""Where tasks are: those that come with Fanfold, and the project's own."""
CHAOS = "chaos."
"""Tasks whose names begin so do damage on purpose; only where `settings.chaos` is on can they be found."""

RETRY_SECONDS = 30.0
"""A module that could not be imported is tried again when one of its tasks is asked for, at most this often: what it
does as it is imported (reading a parameter, say) may succeed the next time."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_DECORATED = re.compile(rf"""\btask\(\s*(["'])({_NAME.pattern})\1""")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDef:
    """A task as registered, by `module`: how its function is called.

    `wants_needs`: its `ctx.needs` holds the outputs of its step's needs.
    """

    name: str
    module: str
    function: Callable[..., Any]
    is_async: bool
    wants_ctx: bool
    wants_needs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenModule:
    """A module that could not be imported: why, with the traceback, and the `tasks` that its text would register."""

    name: str
    error: str
    trace: str
    tasks: frozenset[str]


class NotLoaded(NotFound):
    """The task is there, but its module can't be imported."""


class Find(Protocol):
    """Finds a task by name, as `find` does."""

    def __call__(self, name: str, *, chaos: bool = False) -> TaskDef:
        """See `find`."""


_tasks: dict[str, TaskDef] = {}
_broken: dict[str, BrokenModule] = {}
_loading = threading.RLock()
_loaded = False
_tried_at = 0.0


def task(name: str, *, wants_needs: bool = False) -> Callable[[Function], Function]:
    """Registers a function of `(input)` or `(input, ctx)` under a dotted lower-case name.

    The function itself is returned unchanged, so a test calls it as it stands. Raises ValueError
    for a name that is malformed or taken, TypeError for a function that can't be called so.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"task name {name!r} does not match ^{_NAME.pattern}$")
    # Not the function's own module: that may be a library's.
    by = sys._getframe(1).f_globals.get("__name__", "")

    def register(function: Function) -> Function:
        taken = _tasks.get(name)
        if taken is not None:
            raise ValueError(f"task {name!r} is registered already, by {taken.module}")
        _tasks[name] = TaskDef(
            name=name,
            module=by,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            wants_ctx=_wants_ctx(name, function),
            wants_needs=wants_needs,
        )
        return function

    return register


def find(name: str, *, chaos: bool = False) -> TaskDef:
    """The task of that name; raises `NotFound`. Chaos tasks exist only for callers that pass `chaos=True`.

    Raises `NotLoaded`, which says why, for a task whose module can't be imported.
    """
    load_all()
    found = _tasks.get(name)
    if found is None and _broken and time.monotonic() >= _tried_at + RETRY_SECONDS:
        _load()
        found = _tasks.get(name)
    if found is not None and (chaos or not name.startswith(CHAOS)):
        return found
    why = not_loaded().get(name)
    if why is not None:
        raise NotLoaded(f"task {name!r} could not be loaded: {why}")
    raise NotFound(f"no task is called {name!r}")


def names(*, chaos: bool = False) -> frozenset[str]:
    """The names of all tasks that are loaded; chaos tasks only with `chaos=True`."""
    load_all()
    return frozenset(name for name in _tasks if chaos or not name.startswith(CHAOS))


def not_loaded() -> dict[str, str]:
    """The names that modules which can't be imported would register, as far as their text says, and why they can't."""
    load_all()
    return {
        task: f"{module.name}: {module.error}" for module in _broken.values() for task in module.tasks - set(_tasks)
    }


def broken() -> Sequence[BrokenModule]:
    """The modules that could not be imported the last time."""
    load_all()
    return tuple(_broken.values())


def load_all() -> None:
    """Imports every module below `functions/tasks`, once. What a module raises is kept, see `broken`."""
    if not _loaded:
        with _loading:
            if not _loaded:
                _load()


def _load() -> None:
    global _loaded, _tried_at
    with _loading:
        _broken.clear()
        for name in PACKAGES:
            if importlib.util.find_spec(name.partition(".")[0]) and importlib.util.find_spec(name):
                _import_below(importlib.import_module(name).__path__, name + ".")
        _tried_at = time.monotonic()
        _loaded = True


def _import_below(path: Sequence[str], prefix: str) -> None:
    # Not `pkgutil.walk_packages`: it imports packages by itself, and lets out what they raise.
    for info in pkgutil.iter_modules(path, prefix):
        try:
            module = importlib.import_module(info.name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module that calls sys.exit, too
            _forget_half_loaded()
            spec = info.module_finder.find_spec(info.name, None)
            _broken[info.name] = BrokenModule(
                name=info.name,
                error=f"{type(error).__name__}: {error}"[:500],
                trace="".join(traceback.format_exception(error)),
                tasks=frozenset(_declared(spec)),
            )
            continue
        if info.ispkg:
            _import_below(module.__path__, info.name + ".")


def _forget_half_loaded() -> None:
    """What was registered by modules that raised goes: they are not in `sys.modules` any more."""
    for name, definition in list(_tasks.items()):
        if (
            definition.module.startswith(tuple(f"{name}." for name in PACKAGES))
            and definition.module not in sys.modules
        ):
            del _tasks[name]


def _declared(spec: ModuleSpec | None) -> Iterator[str]:
    """The names in calls of `task` in a module's text; in a package's, of every module below it."""
    if spec is None or spec.origin is None:
        return
    files = [Path(spec.origin)]
    if spec.submodule_search_locations:
        files += sorted(Path(spec.origin).parent.rglob("*.py"))
    for file in files:
        if file.exists():
            text = file.read_text(encoding="utf-8", errors="replace")
            yield from (match[2] for match in _DECORATED.finditer(text))


def _wants_ctx(name: str, function: Callable[..., Any]) -> bool:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"task {name!r} is a generator; a task returns one value")
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind in _POSITIONAL]
    slots = [p for p in parameters if p.kind in _POSITIONAL]
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is inspect.Parameter.empty]
    if not slots or len(needed) > 2 or keyword_only:
        raise TypeError(f"task {name!r} must take (input) or (input, ctx)")
    return len(slots) >= 2
