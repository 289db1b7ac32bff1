"""What others install: one top-level package, light, and usable without this checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fanfold.service.version import VERSION
from tests.support.wheel import built

ROOT = Path(__file__).parents[2]
ABSENT = ("boto3", "botocore", "pydantic", "aws_cdk", "jmespath", "functions", "infra")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_one_top_level_name_and_every_module_of_the_library(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names} == {"fanfold", f"fanfold-{VERSION}.dist-info"}
    listed = subprocess.run(
        ["git", "ls-files", "fanfold"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert sorted(name for name in names if name.startswith("fanfold/")) == sorted(listed)


def test_an_installed_client_works_with_nothing_but_its_own_dependencies(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are this environment's, and nothing else of it: what only an extra installs is refused."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    code = (
        "import importlib.abc, json, sys\n"
        f"sys.path[:0] = [{str(tmp_path / 'site')!r}]\n"
        f"sys.path = [each for each in sys.path if each != {str(ROOT)!r}]\n"
        "class Only(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {ABSENT!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Only())\n"
        "import fanfold\n"
        "fanfold.Client('https://example.org', 'ff_token'), fanfold.AsyncClient('https://example.org', 'ff_token')\n"
        "from fanfold.commands.command_line import main\n"
        "status = main(['--version'])\n"
        "print(json.dumps([fanfold.__file__, status, fanfold.task.__name__]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    version, told = done.stdout.splitlines()
    file, status, task = json.loads(told)
    assert (version, status, task) == (f"fanfold {VERSION}", 0, "task")
    assert file.startswith(str(tmp_path))


def test_every_name_of_the_package_is_there() -> None:
    code = "import fanfold\nfor name in fanfold.__all__:\n    getattr(fanfold, name)\nprint(len(fanfold.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 16
