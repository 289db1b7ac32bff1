"""What of a project and of this library ships to Lambda."""

from __future__ import annotations

import shutil
from pathlib import Path

SHIPPED = (
    "functions",
    "fanfold/__init__.py",
    "fanfold/engine",
    "fanfold/adapters",
    "fanfold/service",
    "fanfold/tasks",
    "fanfold/text",
)
"""The project's entry points and tasks, and of the library what they import."""

EXCLUDES = (
    "*",
    "!functions",
    "!fanfold",
    "fanfold/*",
    *(f"!{path}" for path in SHIPPED),
    *(f"!{path}/**" for path in SHIPPED if not path.endswith(".py")),
    "**/__pycache__",
)
"""The same as patterns of a .dockerignore file."""


def copy_shipped(root: Path, folder: Path) -> None:
    """Copy what ships from the checkout at `root` into `folder`, without byte code."""
    for path in SHIPPED:
        source, target = root / path, folder / path
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
