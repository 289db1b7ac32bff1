"""What `[tool.fanfold]` says of a project, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanfold import project
from fanfold.project import Project, ProjectError


def write(folder: Path, table: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "mine"\n{table}')


def test_a_project_is_found_from_below_it(tmp_path: Path) -> None:
    write(tmp_path, '[tool.fanfold]\ntasks = ["mine.tasks", "other"]\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = project.find(below)
    assert found == Project(folder=tmp_path, name="mine", tasks=("mine.tasks", "other"))


def test_a_python_project_without_the_table_is_none_and_hides_none_above_it(tmp_path: Path) -> None:
    write(tmp_path, "[tool.fanfold]\n")
    write(tmp_path / "inner", "[tool.other]\n")
    found = project.find(tmp_path / "inner")
    assert found is not None
    assert found.folder == tmp_path
    assert not project.is_project(tmp_path / "inner")
    assert project.is_project(tmp_path)


def test_where_there_is_no_project_none_is_found(tmp_path: Path) -> None:
    assert project.find(tmp_path) is None


def test_workflow_files_are_those_that_the_patterns_match_each_once_in_order(tmp_path: Path) -> None:
    write(tmp_path, '[tool.fanfold]\nworkflows = ["flows/*.yaml", "flows/b.*", "absent.yaml"]\n')
    (tmp_path / "flows").mkdir()
    for name in ("b.yaml", "a.yaml", "b.json", "c.txt"):
        (tmp_path / "flows" / name).write_text("")
    (tmp_path / "flows" / "folder.yaml").mkdir()
    found = project.find(tmp_path)
    assert found is not None
    assert [path.name for path in found.workflow_files()] == ["a.yaml", "b.json", "b.yaml"]


def test_without_a_word_about_them_workflows_lie_in_their_folder(tmp_path: Path) -> None:
    write(tmp_path, "[tool.fanfold]\n")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "one.yml").write_text("")
    found = project.find(tmp_path)
    assert found is not None
    assert [path.name for path in found.workflow_files()] == ["one.yml"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[tool.fanfold]\nworkflow = []\n", "no key 'workflow'; did you mean 'workflows'"),
        ("[tool.fanfold]\nx = 1\n", "no key 'x'; there are: tasks, workflows, lock, settings, classes"),
        ("[tool.fanfold]\ntasks = 'mine'\n", "tasks must be a list of texts"),
        ("[tool.fanfold]\nworkflows = [1]\n", "workflows must be a list of texts"),
        ("[tool.fanfold]\nlock = 1\n", "lock must be the name of a file"),
        ("[tool.fanfold]\nsettings = 1\n", "settings must be a table"),
        ("[tool]\nfanfold = 1\n", "tool.fanfold must be a table"),
        ("[tool.fanfold\n", "line"),
    ],
)
def test_a_table_that_is_wrong_is_told_with_its_file_and_key(tmp_path: Path, table: str, said: str) -> None:
    write(tmp_path, table)
    with pytest.raises(ProjectError, match=r"pyproject\.toml") as error:
        project.find(tmp_path)
    assert said in str(error.value)
