"""What ships is imported with the layer's packages only, before it is deployed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fanfold import project as projects
from fanfold.cdk import bundling
from fanfold.cdk.imports import NotImportable, check_imports
from fanfold.project import Project
from infra.stack import PROJECT

Make = Callable[..., Project]

HEAD = "from fanfold.tasks.registry import task\n"
TASK = '\n\n@task("own.{name}")\ndef own(given):\n    return given\n'

HINDRANCES = {
    "outside": ("import httpx\n" + HEAD + TASK, "httpx"),  # it is here, and not in the layer
    "testing": ("from pytest import raises\n" + HEAD + TASK, "pytest"),
    "client": ("import fanfold.client.sync_client\n" + HEAD + TASK, "fanfold.client"),
    "absent": ("import no_such_package_anywhere\n" + HEAD + TASK, "no_such_package_anywhere"),
    "late": (HEAD + TASK + "    import rich.table\n", "rich"),  # fails only when it is called
    "wrong": (HEAD + "def broken(:\n", "SyntaxError"),
    "raising": (HEAD + TASK + "\nraise RuntimeError('no parameter')\n", "no parameter"),
    "leaving": (HEAD + TASK + "\nraise SystemExit(0)\n", "SystemExit"),
    "removed": (HEAD + "import telnetlib\n" + TASK, "telnetlib"),
    "taken": (HEAD + TASK.replace("own.{name}", "core.echo"), "registered already"),
}
"""Modules that could not be imported there, and what is said of each."""

NO_HINDRANCES = {
    "shipped": "import botocore, pydantic, jmespath\nimport boto3\n",
    "optional": "try:\n    import httpx\nexcept ImportError:\n    httpx = None\n",
    "typing": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import httpx\n",
    "near": "from fanfold.engine.errors import Fail\nfrom . import text\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Make:
    """A project like this one with modules of tasks more, by name."""

    def make(**modules: str) -> Project:
        shutil.copytree(PROJECT.folder / "functions", tmp_path / "functions")
        shutil.copy(PROJECT.lock_file, tmp_path)
        (tmp_path / "pyproject.toml").write_text("[tool.fanfold]\n")
        for name, text in modules.items():
            (tmp_path / "functions" / "tasks" / f"{name}.py").write_text(text.replace("{name}", name))
        return projects.at(tmp_path)

    return make


def test_what_this_project_ships_can_be_imported() -> None:
    check_imports(PROJECT)


def test_modules_that_could_not_be_imported_there_are_told_each_with_its_reason(project: Make) -> None:
    with pytest.raises(NotImportable) as refused:
        check_imports(project(**{name: text for name, (text, _) in HINDRANCES.items()}))
    told = dict(line.strip().split(": ", 1) for line in str(refused.value).splitlines()[1:-1])
    assert set(told) == {f"functions.tasks.{name}" for name in HINDRANCES}, "the other modules are sound"
    for name, (_, why) in HINDRANCES.items():
        assert why in told[f"functions.tasks.{name}"]


def test_a_module_that_ends_the_process_that_imports_it_is_told(project: Make) -> None:
    with pytest.raises(NotImportable, match="importing ended the process"):
        check_imports(project(ending="import os\nos._exit(0)\n"))


def test_what_is_there_or_optional_is_no_hindrance(project: Make) -> None:
    check_imports(project(**{name: text + HEAD + TASK for name, text in NO_HINDRANCES.items()}))


def test_no_code_is_packed_that_was_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(project: Project) -> None:
        assert project == PROJECT
        raise NotImportable("own.task")

    monkeypatch.setattr(bundling, "check_imports", refuse)
    with pytest.raises(NotImportable):
        bundling.function_code(PROJECT, compiled=False)


def test_this_machine_has_more_than_the_layer() -> None:
    """Else nothing above would have been shown."""
    __import__("httpx")
    assert "httpx" not in sys.stdlib_module_names
