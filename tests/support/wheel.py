"""The wheel of what git knows of, built as an installer builds it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).parents[2]


def built(folder: Path) -> Path:
    """Build the wheel in a copy below this folder; gives its path."""
    source, into = folder / "source", folder / "dist"
    listed = subprocess.run(
        ["git", "ls-files", "fanfold", "pyproject.toml", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    subprocess.run(
        [find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", str(into)],
        cwd=source,
        capture_output=True,
        check=True,
    )
    (found,) = into.glob("*.whl")
    return found
