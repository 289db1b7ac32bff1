"""`fanfold lock`: the packages of a project's functions, pinned by hash for Lambda's platform."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from fanfold.local.local_stack import LocalError
from fanfold.project import Project

PYTHON: Final = "3.13"
"""Lambda's Python (`fanfold.cdk.bundling`)."""
PLATFORM: Final = "aarch64-manylinux_2_28"
"""Functions are Arm by default; the lock has the hashes of other platforms' wheels as well."""


def lock(project: Project, *, upgrade: bool = False, more: Sequence[str] = ()) -> None:
    """Write the project's lock from the dependencies in its `pyproject.toml`; `more` are options for uv.

    Fanfold itself is left out: what of it ships goes with the functions' code. Raises `LocalError`.
    """
    from uv import find_uv_bin

    command = [
        *(find_uv_bin(), "pip", "compile", "--quiet", "pyproject.toml", "-o", project.lock),
        *("--generate-hashes", "--no-emit-index-url", "--no-emit-package", "fanfold", "--only-binary", ":all:"),
        *("--python-version", PYTHON, "--python-platform", PLATFORM, "--custom-compile-command", "fanfold lock"),
        *(["--upgrade"] if upgrade else []),
        *more,
    ]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"The dependencies could not be locked: {done.stderr.strip()}", status=2)
