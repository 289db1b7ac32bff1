"""`fanfold init`: what it writes, and where it writes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fanfold import project
from fanfold.commands.command_line import main
from fanfold.local import init
from fanfold.local.local_stack import LocalError
from fanfold.service.settings import Settings

ROOT = Path(__file__).parents[3]


def test_a_project_is_one_and_is_called_as_its_folder_is(tmp_path: Path) -> None:
    files = init.create(tmp_path / "mine")
    found = project.at(tmp_path / "mine")
    assert (found.name, found.tasks) == ("mine", ("functions.tasks",))
    assert [path.name for path in found.workflow_files()] == ["hello.yaml"]
    assert Path(".gitignore") in files
    assert not [path for path in (tmp_path / "mine").rglob("*") if path.is_file() and "{{" in path.read_text()]
    assert set(found.settings) <= set(Settings.__dataclass_fields__)


def test_its_entry_points_are_those_of_this_project(tmp_path: Path) -> None:
    init.create(tmp_path / "mine")
    for own in (ROOT / "functions").glob("*.py"):
        assert (tmp_path / "mine" / "functions" / own.name).read_text() == own.read_text()


def test_it_deploys_with_the_same_feature_flags_and_command_line_as_this_project(tmp_path: Path) -> None:
    init.create(tmp_path / "mine")
    mine, ours = (json.loads((folder / "cdk.json").read_text()) for folder in (tmp_path / "mine", ROOT))
    assert mine["context"] == ours["context"]
    mine, ours = (json.loads((folder / "package.json").read_text()) for folder in (tmp_path / "mine", ROOT))
    assert mine["devDependencies"] == ours["devDependencies"]


def test_its_own_tests_pass(tmp_path: Path) -> None:
    init.create(tmp_path / "mine")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"],
        cwd=tmp_path / "mine",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Mine", "1st", "-", "a" * 32, "mine_own", "mine.own"])
def test_a_name_that_no_stack_can_have_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(LocalError, match="no name of a project"):
        init.create(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    assert main(["init", str(tmp_path / "mine")]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]


def test_what_it_wrote_is_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "mine"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["folder"] == str(tmp_path / "mine")
    assert {"app.py", "pyproject.toml", "workflows/hello.yaml"} <= set(told["files"])
