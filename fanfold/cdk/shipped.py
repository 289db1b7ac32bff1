"""What of a project and of this library ships to Lambda."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fanfold.project import Project

LIBRARY: Final = Path(__file__).resolve().parents[1]
"""Where this library is installed."""

PARTS: Final = ("__init__.py", "engine", "adapters", "service", "tasks", "text")
"""What of this library ships: what the entry points import."""


class NothingToShip(ValueError):
    """A project lacks a package that it says its functions consist of."""


def shipped(project: Project) -> Iterator[tuple[Path, Path]]:
    """Every file or folder that ships, and where it lies in the function. Raises `NothingToShip`."""
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
