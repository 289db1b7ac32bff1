"""The files of a project and of this library that ship to Lambda."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fanfold.project import Project

LIBRARY: Final = Path(__file__).resolve().parents[1]
"""The folder of this library."""

PARTS: Final = ("__init__.py", "engine", "adapters", "service", "tasks", "text")
"""The parts of this library that ship: those that entry points import."""


class NothingToShip(ValueError):
    """A project lacks a package that its functions need."""


def shipped(project: Project) -> Iterator[tuple[Path, Path]]:
    """Every file or folder that ships, and its path in the function. Raises `NothingToShip`."""
    for name in project.packages:
        package, module = project.folder / name, project.folder / f"{name}.py"
        if package.is_dir():
            yield package, Path(name)
        elif module.is_file():
            yield module, Path(module.name)
        else:
            raise NothingToShip(f"{project.folder} has no package {name!r}, which its functions consist of")
    for part in PARTS:
        yield LIBRARY / part, Path("fanfold") / part


def copy_shipped(project: Project, folder: Path) -> None:
    """Copy what ships into `folder`, without byte code."""
    for source, place in shipped(project):
        target = folder / place
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
