"""A project: the folder of a `pyproject.toml` with a table `[tool.fanfold]`, and what that table says.

[tool.fanfold]
tasks = ["functions.tasks"]          # modules and packages whose import registers tasks
workflows = ["workflows/*.yaml"]     # documents, as paths or patterns below the folder

[tool.fanfold.settings]              # see docs/settings.md
retention_days = 90

[tool.fanfold.classes.model]         # see docs/deployment.md
concurrency = 200
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FILE: Final = "pyproject.toml"
TASKS: Final = ("functions.tasks",)
"""Where a project's tasks are that says nothing of them."""
_KEYS: Final = ("tasks", "workflows", "lock", "settings", "classes")


class ProjectError(ValueError):
    """The project's table is wrong; the sentence names the file and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a project consists of; without a table it has the shape that `fanfold init` writes.

    `name` is that of its Python project, or its folder's; stacks are named after it.
    `settings` and `classes` are as they stand in the file: whoever uses them checks their values.
    """

    folder: Path
    name: str = "fanfold"
    tasks: tuple[str, ...] = TASKS
    workflows: tuple[str, ...] = ("workflows/*.yaml", "workflows/*.yml", "workflows/*.json")
    lock: str = "requirements.lock"
    settings: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lock_file(self) -> Path:
        """The file of the functions' packages, which need not be there."""
        return self.folder / self.lock

    @property
    def packages(self) -> tuple[str, ...]:
        """The top-level packages and modules of the project that its functions consist of, each once."""
        return tuple(dict.fromkeys(["functions", *(name.partition(".")[0] for name in self.tasks)]))

    def workflow_files(self) -> list[Path]:
        """The files of workflow documents that are there, in order."""
        found = {path for pattern in self.workflows for path in self.folder.glob(pattern) if path.is_file()}
        return sorted(found)


def find(start: Path) -> Project | None:
    """The project around `start`: of the nearest folder, from there upwards, whose file has the table; else None.

    Raises `ProjectError`.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        file = folder / FILE
        if file.is_file() and (table := _table(file)) is not None:
            return _project(folder, table)
    return None


def at(folder: Path) -> Project:
    """The project of exactly this folder. Raises `ProjectError` where it is none."""
    file = folder.resolve() / FILE
    table = _table(file) if file.is_file() else None
    if table is None:
        raise ProjectError(f"{file} has no table [tool.fanfold]")
    return _project(folder.resolve(), table)


def is_project(folder: Path) -> bool:
    """Whether this folder's own file has the table; a file that is no TOML has none."""
    file = folder / FILE
    try:
        return file.is_file() and _table(file) is not None
    except ProjectError:
        return False


def _table(file: Path) -> Any:
    return _document(file).get("tool", {}).get("fanfold")


def _document(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file}: {error}") from error


def _project(folder: Path, table: Any) -> Project:
    file = folder / FILE
    if not isinstance(table, dict):
        raise ProjectError(f"{file}: tool.fanfold must be a table")
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(_KEYS)}"
            raise ProjectError(f"{file}: [tool.fanfold] has no key {key!r}{hint}")
    for key in ("tasks", "workflows"):
        _check_texts(file, key, table.get(key, []))
    for key in ("settings", "classes"):
        if not isinstance(table.get(key, {}), dict):
            raise ProjectError(f"{file}: [tool.fanfold] {key} must be a table")
    if not isinstance(table.get("lock", ""), str):
        raise ProjectError(f"{file}: [tool.fanfold] lock must be the name of a file")
    name = str(_document(file).get("project", {}).get("name", folder.name))
    given: dict[str, Any] = {key: tuple(table[key]) for key in ("tasks", "workflows") if key in table}
    given |= {key: table[key] for key in ("lock", "settings", "classes") if key in table}
    return Project(folder=folder, name=name, **given)


def _check_texts(file: Path, key: str, given: Any) -> None:
    texts: Sequence[Any] = given if isinstance(given, list) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        raise ProjectError(f"{file}: [tool.fanfold] {key} must be a list of texts")
