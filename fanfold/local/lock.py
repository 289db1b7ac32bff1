"""`fanfold lock`: the packages of a project's functions, pinned by hash for Lambda's platform."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from typing import Final

from fanfold.local.local_stack import LocalError
from fanfold.project import FILE, Project

PYTHON: Final = "3.13"
"""Lambda's Python (`fanfold.cdk.bundling`)."""
PLATFORM: Final = "aarch64-manylinux_2_28"
"""Functions are Arm by default; the lock has the hashes of other platforms' wheels as well."""

_OWN: Final = re.compile(r"fanfold\b(?![-_.])", re.IGNORECASE)
_OF_SERVICE: Final = re.compile(r"""extra\s*==\s*["']service["']""")
_SERVED: Final = "pyyaml"
"""What the API needs of those packages that the client installs."""


def lock(project: Project, *, upgrade: bool = False, more: Sequence[str] = ()) -> None:
    """Write the project's lock from the dependencies in its `pyproject.toml`; `more` are options for uv.

    Fanfold itself is left out: what of it ships goes with the functions' code. What it needs there is taken from the
    installed version. Raises `LocalError`.
    """
    from uv import find_uv_bin

    command = [
        *(find_uv_bin(), "pip", "compile", "--quiet", "-", "-o", project.lock),
        *("--generate-hashes", "--no-emit-index-url", "--only-binary", ":all:", "--no-annotate"),
        *("--python-version", PYTHON, "--python-platform", PLATFORM, "--custom-compile-command", "fanfold lock"),
        *(["--upgrade"] if upgrade else []),
        *more,
    ]
    wanted = "\n".join(requirements(project))
    done = subprocess.run(command, cwd=project.folder, input=wanted, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"The dependencies could not be locked: {done.stderr.strip()}", status=2)


def requirements(project: Project) -> Iterator[str]:
    """What the functions need: the project's own dependencies, and those of the part of Fanfold that ships.

    Raises `LocalError` for a project whose file lists none, or something else.
    """
    table = tomllib.loads((project.folder / FILE).read_text(encoding="utf-8")).get("project", {})
    declared = table.get("dependencies")
    if not isinstance(declared, list) or not all(isinstance(one, str) for one in declared):
        raise LocalError(f"{project.folder / FILE}: [project] has no list of dependencies.", status=2)
    yield from (one for one in declared if not _OWN.match(one))
    for one in importlib.metadata.requires("fanfold") or ():
        requirement, _, marker = one.partition(";")
        if _OF_SERVICE.search(marker) or (not marker and requirement.lower().startswith(_SERVED)):
            yield requirement.strip()
