"""What `fanfold lock` pins: a project's own dependencies, and what the shipped part of the library needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fanfold import project
from fanfold.local.local_stack import LocalError
from fanfold.local.lock import requirements


def names(folder: Path, dependencies: str) -> set[str]:
    (folder / "pyproject.toml").write_text(f'[project]\nname = "mine"\n{dependencies}\n[tool.fanfold]\n')
    return {re.split(r"[^A-Za-z0-9_-]", one)[0].lower() for one in requirements(project.at(folder))}


SHIPPED = {"boto3", "aws-lambda-powertools", "pydantic", "jmespath", "pyyaml"}


def test_the_library_is_not_looked_for_and_what_it_needs_in_a_function_is(tmp_path: Path) -> None:
    assert names(tmp_path, 'dependencies = ["fanfold[service]>=0.1", "humanize>4"]') == {*SHIPPED, "humanize"}
    assert names(tmp_path, 'dependencies = ["Fanfold"]') == SHIPPED


def test_a_package_whose_name_begins_alike_is_another(tmp_path: Path) -> None:
    assert names(tmp_path, 'dependencies = ["fanfold-extras", "fanfold"]') == {*SHIPPED, "fanfold-extras"}


@pytest.mark.parametrize("dependencies", ["", "dependencies = 3", "dependencies = [3]"])
def test_a_project_without_a_list_of_dependencies_is_told(tmp_path: Path, dependencies: str) -> None:
    with pytest.raises(LocalError, match="no list of dependencies"):
        names(tmp_path, dependencies)
