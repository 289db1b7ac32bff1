"""`fanfold init`: a project in a folder of its own."""

from __future__ import annotations

import importlib.resources
import re
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from fanfold.local.local_stack import LocalError

NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""What a project may be called: its stacks and queues are named after it."""

_PLACE: Final = "{{name}}"
_RENAMED: Final = {"gitignore": ".gitignore"}


def create(folder: Path) -> list[Path]:
    """Write a project into a folder, which is made if need be and has to be empty; gives the files, relative to it.

    The project is called as the folder is. Raises `LocalError` (usage).
    """
    name = folder.resolve().name
    if not NAME.fullmatch(name):
        raise LocalError(f"{name!r} is no name of a project: a-z, then a-z, 0-9 and '-', at most 31.", status=2)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LocalError(f"{folder} is there already, and is not empty.", status=2)
    written = []
    for path, source in _files(importlib.resources.files("fanfold.local") / "template", Path()):
        target = folder / path.with_name(_RENAMED.get(path.name, path.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8").replace(_PLACE, name), encoding="utf-8")
        written.append(target.relative_to(folder))
    return sorted(written)


def _files(folder: Traversable, below: Path) -> list[tuple[Path, Traversable]]:
    found = []
    for entry in folder.iterdir():
        if entry.name == "__pycache__":
            continue
        path = below / entry.name
        found += _files(entry, path) if entry.is_dir() else [(path, entry)]
    return found
