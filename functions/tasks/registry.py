"""The tasks a step can call: functions under a name, registered by a decorator.

    @task("mail.send")
    async def send(input: Json, ctx: Context) -> Json: ...

A task is an `async` function, which runs on the worker's event loop and must not block it, or a
plain one, which runs in a thread of its own. It takes the step's input, and if it wants the
`Context` beside it. Every module below `functions/tasks` is imported once, when a name is first asked for.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from functions.engine.errors import NotFound

PACKAGE = "functions.tasks"
CHAOS = "chaos."
"""Tasks whose names begin so do damage on purpose; only where `settings.chaos` is on can they be found."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDef:
    """A task as registered: how its function is called.

    `wants_needs`: its `ctx.needs` holds the outputs of its step's needs.
    """

    name: str
    function: Callable[..., Any]
    is_async: bool
    wants_ctx: bool
    wants_needs: bool


class Find(Protocol):
    """Finds a task by name, as `find` does."""

    def __call__(self, name: str, *, chaos: bool = False) -> TaskDef:
        """See `find`."""


_tasks: dict[str, TaskDef] = {}
_loading = threading.RLock()
_loaded = False


def task(name: str, *, wants_needs: bool = False) -> Callable[[Function], Function]:
    """Registers a function of `(input)` or `(input, ctx)` under a dotted lower-case name.

    The function itself is returned unchanged, so a test calls it as it stands. Raises ValueError
    for a name that is malformed or taken, TypeError for a function that can't be called so.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"task name {name!r} does not match ^{_NAME.pattern}$")

    def register(function: Function) -> Function:
        taken = _tasks.get(name)
        if taken is not None:
            raise ValueError(f"task {name!r} is registered already, by {taken.function.__module__}")
        _tasks[name] = TaskDef(
            name=name,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            wants_ctx=_wants_ctx(name, function),
            wants_needs=wants_needs,
        )
        return function

    return register


def find(name: str, *, chaos: bool = False) -> TaskDef:
    """The task of that name; raises `NotFound`. Chaos tasks exist only for callers that pass `chaos=True`."""
    load_all()
    found = _tasks.get(name)
    if found is None or (name.startswith(CHAOS) and not chaos):
        raise NotFound(f"no task is called {name!r}")
    return found


def names(*, chaos: bool = False) -> frozenset[str]:
    """The names of all tasks; chaos tasks only with `chaos=True`."""
    load_all()
    return frozenset(name for name in _tasks if chaos or not name.startswith(CHAOS))


def load_all() -> None:
    """Imports every module below `functions/tasks`, once. What a module raises flies, and the next call tries again."""
    global _loaded
    if _loaded:
        return
    with _loading:
        package = importlib.import_module(PACKAGE)
        for module in pkgutil.walk_packages(package.__path__, PACKAGE + "."):
            before = dict(_tasks)
            try:
                importlib.import_module(module.name)
            except BaseException:
                # Else the next try would report a duplicate instead of what is really wrong.
                _tasks.clear()
                _tasks.update(before)
                raise
        _loaded = True


def _wants_ctx(name: str, function: Callable[..., Any]) -> bool:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"task {name!r} is a generator; a task returns one value")
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind in _POSITIONAL]
    places = [p for p in parameters if p.kind in _POSITIONAL]
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is inspect.Parameter.empty]
    if not places or len(needed) > 2 or keyword_only:
        raise TypeError(f"task {name!r} must take (input) or (input, ctx)")
    return len(places) >= 2
