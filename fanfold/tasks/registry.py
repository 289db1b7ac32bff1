"""The tasks a step can call: functions under a name, registered by a decorator.

    @task("mail.send")
    async def send(input: Json, ctx: Context) -> Json: ...

A task is an `async` function, which runs on the worker's event loop and must not block it, or a
plain one, which runs in a thread of its own. It takes the step's input, and if it wants the
`Context` beside it. The modules that `use` names, and those below them, are imported once, when a name is first asked
for. One that can't be imported costs its own tasks: they are `NotLoaded`, all others are there.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import linecache
import pkgutil
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from fanfold.engine.errors import NotFound

OWN = "fanfold.tasks"
"""The package of the tasks that come with Fanfold."""
USUAL = "functions.tasks"
"""The package of a project's own tasks where it names none; it may be absent."""
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


_modules: tuple[str, ...] = (OWN, USUAL)
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


def use(modules: Sequence[str]) -> None:
    """Have the project's tasks come from these modules and packages; those of Fanfold's own come beside them."""
    global _modules, _loaded
    with _loading:
        if _modules != (OWN, *modules):
            _modules = (OWN, *modules)
            _loaded = False


def load_all() -> None:
    """Imports every module of tasks, once. What a module raises is kept, see `broken`."""
    if not _loaded:
        with _loading:
            if not _loaded:
                _load()


def reload(folder: Path) -> Sequence[BrokenModule]:
    """Imports anew what was imported from files below `folder`; what can't be imported, which stays as it was.

    Attempts that have begun go on with the function they began with.
    """
    with _loading:
        load_all()
        before = dict(_tasks)
        imported = {name: module for name, module in sys.modules.items() if _lies_below(module, folder)}
        for name in imported:
            del sys.modules[name]
        for name, definition in before.items():
            if definition.module in imported:
                del _tasks[name]
        importlib.invalidate_caches()
        linecache.checkcache()
        _load()
        for module in _broken.values():
            of_it = {name for name in imported if _is_of(name, (module.name,))}
            sys.modules.update({name: imported[name] for name in of_it})
            _tasks.update({n: d for n, d in before.items() if d.module in of_it and n not in _tasks})
        return tuple(_broken.values())


def _lies_below(module: ModuleType, folder: Path) -> bool:
    """Whether a module is the project's own: from a file in its folder, and not of the packages installed there."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__" or _is_of(module.__name__, ("fanfold",)):
        return False
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.parts


def _is_of(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _load() -> None:
    global _loaded, _tried_at
    with _loading:
        _broken.clear()
        for name in _modules:
            if name != USUAL or (importlib.util.find_spec(name.partition(".")[0]) and importlib.util.find_spec(name)):
                _import(name)
        _tried_at = time.monotonic()
        _loaded = True


def _import(name: str) -> None:
    """Imports a module and all below it. Not by `pkgutil.walk_packages`, which lets out what packages raise."""
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that calls sys.exit, too
        _forget_half_loaded()
        _broken[name] = BrokenModule(
            name=name,
            error=f"{type(error).__name__}: {error}"[:500],
            trace=_trace(error),
            tasks=frozenset(_declared(_spec(name))),
        )
        return
    for info in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        _import(info.name)


def _trace(error: BaseException) -> str:
    """The traceback, without the frames of the import itself."""
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if not _imports(frame.filename)])
    return "".join(told.format())


def _imports(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is that could not be imported; None where it can't be told."""
    package, _, last = name.rpartition(".")
    path = getattr(sys.modules.get(package), "__path__", None)
    return PathFinder.find_spec(name if package else last, path) if path or not package else None


def _forget_half_loaded() -> None:
    """What was registered by modules that raised goes: they are not in `sys.modules` any more."""
    for name, definition in list(_tasks.items()):
        if _is_of(definition.module, _modules) and definition.module not in sys.modules:
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
